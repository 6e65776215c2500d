"""Patterns match only equivalent formulas: formulas with one detail changed, and random formulas on square
matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal import capture
from polyhal.hal.compile.passes.pipeline import optimize
from polyhal.hal.core.dispatch import EAGER, executing

from .rich_device import rich_device

F = ph.functions
N = 4
HALF_EPS = 2.0**-24
Formula = Callable[..., Any]


def _ops(formula: Formula, *shapes: tuple[int, ...]) -> tuple[list[str], Any, list[np.ndarray]]:
    """Return the ops that a formula becomes on a device with all kernels; its result, and its inputs."""
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-2, 2, s).astype(np.float32) for s in shapes]
    device = rich_device()
    tensors = [ph.Tensor(a, device=device) for a in arrays]
    with capture() as step:
        result = formula(*tensors)
    return [n.op.name for n in optimize(step.graph).nodes], result, arrays


def _softmax(x: Any, top: Any, total: Callable[[Any], Any]) -> Any:
    e = F.exp(x - top)
    return e / total(e)


def _rms(x: Any, mean: Any, *, scale: float = 1.0) -> Any:
    return x * F.rsqrt(scale * mean + 1e-6)


NEAR_MISSES: dict[str, tuple[Formula, str]] = {
    "the maximum of columns below rows": (
        lambda x: _softmax(x, x.max(axis=0, keepdims=True), lambda e: e.sum(axis=1, keepdims=True)),
        "softmax",
    ),
    "the sum of columns below rows": (
        lambda x: _softmax(x, x.max(axis=1, keepdims=True), lambda e: e.sum(axis=0, keepdims=True)),
        "softmax",
    ),
    "maxima of rows laid along columns": (
        lambda x: _softmax(x, x.max(axis=1).reshape(1, N), lambda e: e.sum(axis=1, keepdims=True)),
        "softmax",
    ),
    "sums of rows laid along columns": (
        lambda x: _softmax(x, x.max(axis=1, keepdims=True), lambda e: e.sum(axis=1)),
        "softmax",
    ),
    "the maximum of another tensor": (
        lambda x: _softmax(x, (x + 1.0).max(axis=1, keepdims=True), lambda e: e.sum(axis=1, keepdims=True)),
        "softmax",
    ),
    "a sum of twice as many terms": (
        lambda x: _softmax(
            x,
            x.max(axis=1, keepdims=True),
            lambda e: (e.sum(axis=1, keepdims=True).broadcast_to((N, 2))).sum(axis=1, keepdims=True),
        ),
        "softmax",
    ),
    "a scale beside the mean square": (lambda x: _rms(x, (x * x).mean(axis=1, keepdims=True), scale=2.0), "rms_norm"),
    "a sum that is no mean": (lambda x: _rms(x, (x * x).sum(axis=1, keepdims=True)), "rms_norm"),
    "the mean of leading axes": (lambda x: _rms(x, (x * x).mean(axis=0, keepdims=True)), "rms_norm"),
    "a fourth power for a square": (lambda x: _rms(x, (x**4).mean(axis=1, keepdims=True)), "rms_norm"),
    "no epsilon": (lambda x: x * F.rsqrt((x * x).mean(axis=1, keepdims=True)), "rms_norm"),
    "the standard deviation below its own mean": (
        lambda x: (x.mean(axis=1, keepdims=True) - x) * F.rsqrt(x.var(axis=1, keepdims=True) + 1e-5),
        "layer_norm",
    ),
    "the unbiased variance": (
        lambda x: (x - x.mean(axis=1, keepdims=True)) * F.rsqrt(x.var(axis=1, keepdims=True, correction=1) + 1e-5),
        "layer_norm",
    ),
    "half a gelu": (lambda x: 0.25 * x * (1 + F.erf(x / 2**0.5)), "gelu"),
    "the gelu of something else": (lambda x: 0.5 * x * (1 + F.erf(-x / 2**0.5)), "gelu"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_formula_with_one_detail_changed_is_not_matched(name: str) -> None:
    formula, op = NEAR_MISSES[name]
    ops, _, _ = _ops(formula, (N, N))
    assert op not in ops


SPELLINGS: dict[str, tuple[Formula, list[str]]] = {
    "a weight that is a product of its own": (
        lambda x, w, b: _rms(x, (x * x).mean(axis=1, keepdims=True)) * (w * b),
        ["multiply", "rms_norm"],
    ),
    "a bias that is a sum of its own": (
        lambda x, w, b: (
            (x - x.mean(axis=1, keepdims=True)) * F.rsqrt(x.var(axis=1, keepdims=True) + 1e-5) * w + (b + w.tanh())
        ),
        ["fused_elementwise", "layer_norm"],
    ),
    "a weight before the root": (
        lambda x, w, b: x * (w * F.rsqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)),
        ["rms_norm"],
    ),
    "statistics spread over rows before they are used": (
        lambda x, w, b: x / F.sqrt((x * x).mean(axis=1, keepdims=True).broadcast_to((3, N)) + 1e-6),
        ["rms_norm"],
    ),
    "the sum over all axes": (
        lambda x, w, b: _softmax(x[0], x[0].max(), lambda e: e.sum()),
        ["softmax"],
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_unusual_spellings_match(name: str) -> None:
    formula, expected = SPELLINGS[name]
    ops, result, arrays = _ops(formula, (3, N), (N,), (N,))
    assert [op for op in ops if op not in ("slice", "reshape")] == expected
    device = ph.Device("numpy")
    with executing(EAGER):
        plain = formula(*[ph.Tensor(a, device=device) for a in arrays])
    # Numbers below 8 go through at most 16 roundings in either form; a norm of such rows grows errors by 4 at most.
    np.testing.assert_allclose(result.numpy(), plain.numpy(), rtol=0, atol=2 * 16 * 8 * HALF_EPS)


choices = st.lists(st.integers(0, 5), min_size=12, max_size=12)


@settings(max_examples=150, deadline=None)
@given(choices)
def test_matched_formulas_compute_equal_results(drawn: list[int]) -> None:
    """Formulas like norms and softmaxes with random axes, alignments, statistics and constants; most are neither."""
    formula = _Random(drawn).formula
    ops, result, arrays = _ops(formula, (N, N), (N,), (N,))
    device = ph.Device("numpy")
    plain = formula(*[ph.Tensor(a, device=device) for a in arrays])
    assert ops
    relative, absolute = _errors(*arrays)
    np.testing.assert_allclose(result.numpy(), plain.numpy(), rtol=2 * relative, atol=2 * absolute)


def _errors(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return bounds of the relative error of `_Random`'s exponentials and of the absolute error of its norms."""
    total = max(np.abs(x).sum(axis).max() for axis in (0, 1))
    centred = np.abs(x).max() + total
    shift = (N - 1) * total + centred  # of a centred element: a sum of N, and a difference
    exponential = 2 * (shift + 2) + N  # of both sides of the quotient, with functions good to 2 units
    # With c centred, c * c + 0.5 is off by 2 c shift, a fraction of at most sqrt(2) shift; its root by half of that.
    root = shift / np.sqrt(2) + N + 2
    normal = np.sqrt(2) * (shift + centred * (root + 2)) * np.abs(w).max() + np.abs(b).max()
    return HALF_EPS * float(exponential), HALF_EPS * float(normal)


class _Random:
    """A formula from a list of choices."""

    def __init__(self, drawn: list[int]) -> None:
        self._drawn = drawn

    def formula(self, x: Any, w: Any, b: Any) -> Any:
        left = list(self._drawn)

        def statistic(y: Any) -> Any:
            axis, form, kind = left.pop() % 6 // 5, left.pop(), left.pop()
            reduced = [y.sum, y.mean, y.max, y.mean][kind % 4](axis=1 - axis, keepdims=form > 2)
            return reduced if form != 2 else reduced.reshape(N, 1)

        centred = x - statistic(x) if left.pop() % 3 else x
        if left.pop() % 2:
            e = F.exp(centred)
            return e / statistic(e)
        square = centred * centred if left.pop() % 4 else centred.abs()
        normal = centred * F.rsqrt(F.abs(statistic(square)) + 0.5)
        return normal * w + b if left.pop() % 2 else b * normal
