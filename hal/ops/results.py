"""Named results of public functions that return several tensors, with PyTorch's names of fields.

`linear_algebra/results.py` has the results of linear algebra.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class SelectionResult(NamedTuple):
    """Elements that were selected along an axis, and their positions (int64)."""

    values: Any
    indices: Any


class FrexpResult(NamedTuple):
    """Mantissas in [0.5, 1), and integer exponents."""

    mantissa: Any
    exponent: Any


class AminmaxResult(NamedTuple):
    """Smallest and largest elements."""

    min: Any
    max: Any


class HistogramResult(NamedTuple):
    """Counts by bin, and the edges of the bins."""

    hist: Any
    bin_edges: Any


NAMED: dict[tuple[str, ...], type[Any]] = {r._fields: r for r in (SelectionResult, FrexpResult)}
"""The results of ops by the names of their outputs."""
