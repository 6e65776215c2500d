"""Cross entropy and its gradient become one op where the incoming gradient does not depend on the loss."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal
from polyhal import jit
from polyhal.hal.compile.passes import pipeline
from polyhal.hal.compile.passes.fuse.loss_gradients import fuse_loss_gradients
from polyhal.nn import functional as F

from .golden import check
from .rich_device import rich_device

_STEP = """
    %0: float32[8, 65]
    %1: int64[8]
    %2: float32[]
    on it
    %3, %4 = cross_entropy_rows(%0, %1, ignore_index=-100, label_smoothing=0.0): float32[8], float32[8, 2]
    %5, %6 = mean_loss(%3, %1, ignore_index=-100): float32[], float32[]
    %7 = multiply(%2, {factor}): float32[]
    %8 = broadcast_to(%7, shape=(8,)): float32[8] strides [0]
    %9 = cross_entropy_rows_grad(%8, %0, %1, %4, ignore_index=-100, label_smoothing={smoothing}, columns=0): float32[8, 65]
    return %5, %9
    """

_JOINED = """
%0: float32[8, 65]
%1: int64[8]
%2: float32[]
on it
%3 = full(shape=(), value=0.0, dtype=polyhal.float32): float32[]
%4 = broadcast_to(%3, shape=(8,)): float32[8] strides [0]
%5, %6 = mean_loss(%4, %1, ignore_index=-100): float32[], float32[]
%7 = multiply(%2, %6): float32[]
%8 = broadcast_to(%7, shape=(8,)): float32[8] strides [0]
%9, %10 = cross_entropy_rows_and_grad(%0, %1, %8, ignore_index=-100, label_smoothing=0.0, columns=0): float32[8], float32[8, 65]
%11, %12 = mean_loss(%9, %1, ignore_index=-100): float32[], float32[]
return %11, %10
"""


def _step(factor: str = "%6", smoothing: float = 0.0) -> str:
    return _STEP.format(factor=factor, smoothing=smoothing)


def test_the_scale_of_the_mean_is_computed_before_the_loss() -> None:
    check(
        fuse_loss_gradients,
        _step(),
        _JOINED,
    )


@pytest.mark.parametrize(
    "step",
    [
        _step(factor="%5"),
        _step().replace("multiply(%2, %6)", "multiply(%5, %6)"),
        _step(smoothing=0.1),
        _step().replace("%5, %9", "%5, %9, %4"),
    ],
)
def test_nothing_where_the_gradient_depends_on_the_loss_or_differs(step: str) -> None:
    """Gradients of a squared mean, without and with its scale; another smoothing; statistics that are results of the step."""
    check(fuse_loss_gradients, step, step)


def test_nothing_without_a_kernel() -> None:
    check(fuse_loss_gradients, _step(), _step(), rich_device("cross_entropy_rows_and_grad"))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_results_equal_the_two_ops(device: polyhal.Device, monkeypatch: pytest.MonkeyPatch, reduction: str) -> None:
    """Bit for bit, with ignored targets, on a device that fuses and on one that does not."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((33, 1200)).astype(np.float32)
    target = rng.integers(0, 1200, 33)
    target[::4] = -100

    def run() -> list[np.ndarray]:
        logits, y = polyhal.tensor(x, device=device, requires_grad=True), polyhal.tensor(target, device=device)

        @jit
        def step() -> tuple[polyhal.Tensor, polyhal.Tensor]:
            logits.grad = None
            loss = F.cross_entropy(logits * 2, y, reduction=reduction, label_smoothing=0.1)  # type: ignore[arg-type]
            (loss * 3).backward()
            assert logits.grad is not None
            return loss, logits.grad

        found = [[t.numpy() for t in step()] for _ in range(4)]
        return found[-1]

    joined = run()
    monkeypatch.setattr(pipeline, "PASSES", tuple(p for p in pipeline.PASSES if p is not fuse_loss_gradients))
    for got, wanted in zip(joined, run(), strict=True):
        np.testing.assert_array_equal(got, wanted)
