"""Fit the cost of convolutions to the times of a sweep: rates by kind, rates of packing, and the loss of short rows.

In the time model, the time of a convolution is a linear combination of operations, operations per element of a row, and
bytes of each packed operand. Least squares yield the rates for each choice of packed operands, and the best fit wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from polyhal.backends.sim.timing import KernelCost

_HALF_ROWS = np.arange(0, 24.5, 0.5)
_WAYS = ((), ("weights",), ("image", "weights"))
"""Choices of packed operands: none, only weights (as on GPUs), or both."""
_CLEARLY = 0.8
"""Maximum error of a choice that packs more operands, relative to the choices before it, to replace them."""


class ConvolutionFit(NamedTuple):
    """Rates in operations per second by family, bytes per second by packed operand, and the half row."""

    rates: dict[str, float]
    packing: dict[str, float]
    half_row: float
    error: float
    """Root mean square of the relative errors of predicted times."""


def fit_convolutions(costs: Sequence[KernelCost], seconds: Sequence[float], launch: float) -> ConvolutionFit:
    """Fit the terms to measured times, without memory-bound `costs`. Raises ValueError if `costs` is empty."""
    if not costs:
        raise ValueError("no convolution was measured")
    best: ConvolutionFit | None = None
    for way in _WAYS:
        fits = [_fit(costs, np.asarray(seconds), launch, way, float(h)) for h in _HALF_ROWS]
        fit = min(fits, key=lambda f: f.error)
        if best is None or fit.error < _CLEARLY * best.error:
            best = fit
    assert best is not None
    return best


def _fit(
    costs: Sequence[KernelCost], seconds: np.ndarray, launch: float, way: tuple[str, ...], half_row: float
) -> ConvolutionFit:
    families = sorted({c.family for c in costs})
    packed = [{o: n for o, n in _sums(c).items() if o in way} for c in costs]
    launches = [c.launches + sum(o in way for o, _ in c.packed) for c in costs]
    work = seconds - launch * np.asarray(launches)
    rows = [
        [c.flops * (1 + half_row / c.row) * (c.family == f) for f in families] + [p.get(o, 0) for o in way]
        for c, p in zip(costs, packed, strict=True)
    ]
    design = np.asarray(rows, float) / seconds[:, None]
    solution = _nonnegative(design, work / seconds)
    error = float(np.sqrt(np.mean((design @ solution - work / seconds) ** 2)))
    rates = {f: 1 / x for f, x in zip(families, solution, strict=False) if x > 0}
    packing = {o: 1 / x for o, x in zip(way, solution[len(families) :], strict=True) if x > 0}
    whole = len(rates) == len(families) and len(packing) == len(way)
    return ConvolutionFit(rates, packing, half_row, error if whole else float("inf"))


def _sums(cost: KernelCost) -> dict[str, int]:
    """Return bytes by packed operand, summed: gradients of weights pack two images."""
    sums: dict[str, int] = {}
    for operand, nbytes in cost.packed:
        sums[operand] = sums.get(operand, 0) + nbytes
    return sums


def _nonnegative(design: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve least squares with scaled columns; negative terms are dropped one after the other, and are 0."""
    scale = np.maximum(np.abs(design).max(axis=0), np.finfo(float).tiny)
    kept = list(range(design.shape[1]))
    solution = np.zeros(design.shape[1])
    while kept:
        part, *_ = np.linalg.lstsq(design[:, kept] / scale[kept], target, rcond=None)
        if part.min() >= 0:
            solution[kept] = part / scale[kept]
            break
        kept.pop(int(part.argmin()))
    return solution
