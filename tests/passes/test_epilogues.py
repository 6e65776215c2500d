"""Products whose results meet: each keeps an epilogue of its own, and what they share belongs to one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import capture, nn
from polyhal.hal.device import Device
from polyhal.hal.passes.fuse.epilogues import fuse_epilogues

from .golden import check
from .rich_device import rich_device

F = ph.functions


def test_two_products_that_end_in_one_node_share_it_once() -> None:
    check(
        fuse_epilogues,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %3 = multiply(%0, 2): float32[3, 4]
        %4 = matmul(%3, %1, out_dtype=None): float32[3, 4]
        %5 = add(%2, %4): float32[3, 4]
        return %5
        """,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = multiply(%0, 2): float32[3, 4]
        %3 = matmul(%2, %1, out_dtype=None): float32[3, 4]
        %4 = fused_matmul(%0, %1, %3, steps=(('add', (0, 1), ()),), numbers=()): float32[3, 4]
        return %4
        """,
    )


def test_the_second_product_keeps_the_part_of_its_chain_that_is_its_own() -> None:
    check(
        fuse_epilogues,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %3 = matmul(%0, %1, out_dtype=None): float32[3, 4]
        %4 = tanh(%2): float32[3, 4]
        %5 = relu(%3): float32[3, 4]
        %6 = multiply(%4, %5): float32[3, 4]
        return %6
        """,
        """
        %0: float32[3, 4]
        %1: float32[4, 4]
        on it
        %2 = fused_matmul(%0, %1, steps=(('relu', (0,), ()),), numbers=()): float32[3, 4]
        %3 = fused_matmul(%0, %1, %2, steps=(('tanh', (0,), ()), ('multiply', (2, 1), ())), numbers=()): float32[3, 4]
        return %3
        """,
    )


def _sum_of_products(x: Any, w: Any, v: Any) -> Any:
    return x @ w + (x * 2) @ w


def _gated(x: Any, w: Any, v: Any) -> Any:
    return F.silu(x @ w) * (x @ v)


def _three(x: Any, w: Any, v: Any) -> Any:
    return (x @ w + x @ v) * (x @ (w + v)).tanh()


@pytest.mark.parametrize("formula", [_sum_of_products, _gated, _three])
def test_products_that_meet_compute_what_they_do_one_by_one(formula: Callable[..., Any], device: Device) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in [(6, 8), (8, 8), (8, 8)]]
    for target in (device, rich_device()):
        tensors = [ph.Tensor(a, device=target) for a in arrays]
        with capture():
            result = formula(*tensors)
        plain = formula(*[ph.Tensor(a, device="numpy") for a in arrays])
        np.testing.assert_allclose(result.numpy(), plain.numpy(), rtol=2e-5, atol=2e-5)


def _two_layers_on_one_input(device: Device) -> tuple[np.ndarray, np.ndarray]:
    """A gradient through both, op by op and captured."""
    ph.manual_seed(0)
    q, k, first = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
    x = ph.Tensor(np.random.default_rng(0).uniform(-1, 1, (6, 8)).astype(np.float32), device=device)

    def step() -> None:
        first.weight.grad = None
        h = first(x)
        (q(h) * k(h)).sum().backward()

    step()
    eager = first.weight.grad.numpy()
    with capture():
        step()
    return eager, first.weight.grad.numpy()


def test_the_gradient_of_a_product_of_layers_on_one_input(device: Device) -> None:
    """The gradients of both layers with respect to their input are products that are added."""
    for target in (device, rich_device()):
        eager, captured = _two_layers_on_one_input(target)
        np.testing.assert_allclose(captured, eager, rtol=2e-5, atol=2e-5)
