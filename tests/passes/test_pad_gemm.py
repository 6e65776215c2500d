"""Rows of logits and of their gradients are padded to the row alignment of a device."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import numpy as np
import pytest

import polyhal
from polyhal import Device, Tensor, jit
from polyhal.amp import autocast
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.layout.pad_gemm import pad_gemm
from polyhal.nn import functional as F

from .golden import check
from .rich_device import rich_device

_LOGITS = """
    %0: bfloat16[2, 4, 8]
    %1: bfloat16[2057, 8]
    %2: int64[8]
    %3: float32[8]
    on it
    %4 = linear(%0, %1, None): bfloat16[2, 4, 2057]
    %5 = reshape(%4, shape=(8, 2057)): bfloat16[8, 2057]
    %6, %7 = cross_entropy_rows(%5, %2, ignore_index=-100, label_smoothing=0.0): float32[8], float32[8, 2]
    %8 = cross_entropy_rows_grad(%3, %5, %2, %7, ignore_index=-100, label_smoothing=0.0, columns=0): bfloat16[8, 2057]
    %9 = matmul(%8, %1, out_dtype=None): bfloat16[8, 8]
    return %6, %9
    """


def _aligned(device: Device, alignment: int = 128) -> Device:
    """Return the device with a preferred row alignment in bytes."""
    backend = device.backend
    limits = replace(backend.capabilities.limits, row_alignment=alignment)
    backend.capabilities = replace(backend.capabilities, limits=limits)  # type: ignore[misc]
    return device


def test_logits_and_gradient() -> None:
    check(
        pad_gemm,
        _LOGITS,
        """
        %0: bfloat16[2, 4, 8]
        %1: bfloat16[2057, 8]
        %2: int64[8]
        %3: float32[8]
        on it
        %4 = full(shape=(55, 8), value=0.0, dtype=polyhal.bfloat16): bfloat16[55, 8]
        %5 = concat(%1, %4, axis=0): bfloat16[2112, 8]
        %6 = linear(%0, %5, None): bfloat16[2, 4, 2112]
        %7 = slice(%6, starts=(0, 0, 0), lengths=(2, 4, 2057), steps=(1, 1, 1)): bfloat16[2, 4, 2057] strides [8448, 2112, 1]
        %8 = reshape(%7, shape=(8, 2057)): bfloat16[8, 2057] strides [2112, 1]
        %9, %10 = cross_entropy_rows(%8, %2, ignore_index=-100, label_smoothing=0.0): float32[8], float32[8, 2]
        %11 = cross_entropy_rows_grad(%3, %8, %2, %10, ignore_index=-100, label_smoothing=0.0, columns=2112): bfloat16[8, 2112]
        %12 = slice(%11, starts=(0, 0), lengths=(8, 2057), steps=(1, 1)): bfloat16[8, 2057] strides [2112, 1]
        %13 = matmul(%12, %1, out_dtype=None): bfloat16[8, 8]
        return %9, %13
        """,
        _aligned(rich_device()),
    )


def test_short_rows_begin_at_whole_vectors() -> None:
    optimized = str(pad_gemm(parse(textwrap.dedent(_LOGITS.replace("2057", "65")), _aligned(rich_device()))))
    assert "columns=72" in optimized
    assert "concat(%1, %4, axis=0): bfloat16[72, 8]" in optimized


def test_nothing_where_rows_may_begin_anywhere() -> None:
    for device in (rich_device(), _aligned(rich_device("cross_entropy_rows_grad"), 2)):
        check(pad_gemm, _LOGITS, _LOGITS, device)


def test_results_of_the_graph_keep_their_recorded_layout() -> None:
    text = _LOGITS.replace("return %6, %9", "return %6, %5, %8")
    check(
        pad_gemm,
        text,
        text.replace("    %9 = matmul(%8, %1, out_dtype=None): bfloat16[8, 8]\n", ""),
        _aligned(rich_device()),
    )


@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
def test_a_captured_step_computes_the_same(half: bool) -> None:
    device = _aligned(rich_device())
    rng = np.random.default_rng(0)
    x, w = (polyhal.tensor(rng.standard_normal(s, np.float32), device=device) for s in ((64, 16), (2057, 16)))
    y = polyhal.tensor(rng.integers(0, 2057, 64), device=device)
    weight = w.requires_grad_()

    def step() -> Tensor:
        weight.grad = None
        with autocast(enabled=half):
            loss = F.cross_entropy(F.linear(x, weight), y)
        loss.backward()
        return loss

    loss = step()
    gradient = weight.grad.numpy()
    assert loss.dtype is polyhal.float32
    run = jit(step)
    for _ in range(3):
        again = run()
    # A cast is computed in place before the rows of zeros.
    lines = str(run.explain()).splitlines()
    assert [any(f" {op}(" in line for line in lines) for op in ("full", "concat")] == [True, not half]
    np.testing.assert_allclose(again.numpy(), loss.numpy(), rtol=1e-6)
    # Only the eager step rounds the gradient to bfloat16 before it is cast.
    np.testing.assert_allclose(weight.grad.numpy(), gradient, rtol=2**-8 if half else 1e-5, atol=1e-7)
