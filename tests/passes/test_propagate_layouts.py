"""Results are written in the layout of the copy that would follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import polyhal as ph
from polyhal import Device, Tensor, jit
from polyhal.hal.compile.passes.decompose import decompose
from polyhal.hal.compile.passes.layout.propagate_layouts import propagate_layouts
from polyhal.nn import functional as F

from .golden import check
from .rich_device import rich_device

_LAID_BY_HEADS = """
    %0: float32[2, 3, 5, 4]
    on it
    %1, %2 = attention(%0, %0, %0, None, causal=False, scale=0.5): float32[2, 3, 5, 4], float32[2, 3, 5, 2]
    %3 = permute(%1, axes=(0, 2, 1, 3)): float32[2, 5, 3, 4] strides [60, 4, 20, 1]
    %4 = contiguous(%3): float32[2, 5, 3, 4]
    %5 = reshape(%4, shape=(10, 12)): float32[10, 12]
    %6 = exp(%5): float32[10, 12]
    return %6
    """
_LAID_BY_TIME = """
    %0: float32[2, 3, 5, 4]
    on it
    %1, %2 = attention(%0, %0, %0, None, causal=False, scale=0.5): float32[2, 3, 5, 4] strides [60, 4, 12, 1], float32[2, 3, 5, 2]
    %3 = permute(%1, axes=(0, 2, 1, 3)): float32[2, 5, 3, 4]
    %4 = contiguous(%3): float32[2, 5, 3, 4]
    %5 = reshape(%4, shape=(10, 12)): float32[10, 12]
    %6 = exp(%5): float32[10, 12]
    return %6
    """  # noqa: E501


def _placing() -> Device:
    """Return a device whose kernels of attention put their results anywhere."""
    device = rich_device()
    device.backend.capabilities = replace(  # type: ignore[misc]
        device.backend.capabilities, strided_ops=frozenset({"attention", "attention_grad"}), suballocation=True
    )
    return device


def test_heads_are_made_side_by_side() -> None:
    check(propagate_layouts, _LAID_BY_HEADS, _LAID_BY_TIME, _placing())


def test_a_result_with_other_users_keeps_its_layout() -> None:
    """Here another op reads the result in its layout."""
    graph = """
        %0: float32[2, 3, 5, 4]
        on it
        %1, %2 = attention(%0, %0, %0, None, causal=False, scale=0.5): float32[2, 3, 5, 4], float32[2, 3, 5, 2]
        %3 = permute(%1, axes=(0, 2, 1, 3)): float32[2, 5, 3, 4] strides [60, 4, 20, 1]
        %4 = contiguous(%3): float32[2, 5, 3, 4]
        %5 = exp(%1): float32[2, 3, 5, 4]
        return %4, %5
        """
    check(propagate_layouts, graph, graph, _placing())


def test_half_precision_is_copied_in_its_dtype() -> None:
    before = """
        %0: bfloat16[2, 3, 4]
        on it
        %1 = permute(%0, axes=(1, 0, 2)): bfloat16[3, 2, 4] strides [4, 12, 1]
        %2 = reshape(%1, shape=(3, 8)): bfloat16[3, 8]
        return %2
        """
    after = """
        %0: bfloat16[2, 3, 4]
        on it
        %1 = permute(%0, axes=(1, 0, 2)): bfloat16[3, 2, 4] strides [4, 12, 1]
        %2 = contiguous(%1): bfloat16[3, 2, 4]
        %3 = reshape(%2, shape=(3, 8)): bfloat16[3, 8]
        return %3
        """
    check(decompose, before, after, Device("numpy"))


def test_a_captured_step_makes_no_copies_of_heads() -> None:
    device = _placing()
    rng = np.random.default_rng(0)
    weight = ph.Tensor(rng.standard_normal((8, 24)).astype(np.float32), device=device).requires_grad_()
    x = ph.Tensor(rng.standard_normal((2, 5, 8)).astype(np.float32), device=device)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        weight.grad = None
        q, k, v = (x @ weight).reshape(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 8)
        (y * y).sum().backward()
        return y, weight.grad * 1.0

    expected = [t.numpy() for t in step(x)]
    jitted = jit(step)
    for _ in range(3):
        found = [t.numpy() for t in jitted(x)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    made = [c.node.op.name for c in jitted.steps[0].executable.calls if c is not None]
    assert "attention_grad" in made
    assert not {"contiguous", "concat"} & set(made)
