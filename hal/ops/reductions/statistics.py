"""Covariances and correlations of variables."""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.ops.complex_numbers.functions import adjoint
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.matmul import matmul
from polyhal.hal.ops.pointwise.exponential import sqrt
from polyhal.hal.ops.pointwise.selection import clip, maximum
from polyhal.hal.ops.reductions.sums import in_float, sum_
from polyhal.hal.ops.tensor_like import TensorLike


@composite()
def cov(x: TensorLike, *, correction: float = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Covariance matrix of the variables in the rows of `x` (variables, observations); of one variable, its variance.

    `fweights` (integers) says how often each observation counts, `aweights` how much. The sum of products is divided by the
    weight less `correction`. Raises ValueError for more than two axes.
    """
    if x.ndim > 2:
        raise ValueError(f"[cov] x has shape {x.shape}; expected at most two axes")
    rows = in_float(reshape(x, (1, -1)) if x.ndim < 2 else x)
    if aweights is not None and aweights.dtype.kind == rows.dtype.kind == "float":
        rows = rows.cast(dtype=dtypes.promote(rows.dtype, aweights.dtype))
    weights = _weights(rows, fweights, aweights)
    if weights is None:
        total: Any = rows.shape[1]
        average = sum_(rows, 1, True) / total if total else sum_(rows, 1, True) * math.nan
        divisor: Any = max(total - correction, 0)
    else:
        total = sum_(weights)
        average = sum_(rows * weights, 1, True) / total
        divisor = total - correction
        if aweights is not None and correction != 0:
            divisor = total - correction * sum_(weights * aweights.cast(dtype=rows.dtype)) / total
        divisor = maximum(divisor, 0)
    centred = rows - average
    products = matmul(centred if weights is None else centred * weights, adjoint(centred))
    out = products / divisor if hasattr(divisor, "spec") else products * (1 / divisor if divisor else math.inf)
    return reshape(out, ()) if rows.shape[0] == 1 else out


def _weights(rows: Any, fweights: Any, aweights: Any) -> Any:
    given = [w.cast(dtype=rows.dtype) for w in (fweights, aweights) if w is not None]
    return None if not given else given[0] if len(given) == 1 else given[0] * given[1]


@composite()
def corrcoef(x: TensorLike) -> Any:
    """Correlation coefficients, -1 to 1, of the variables in the rows of `x` (variables, observations)."""
    c = cov(x)
    if not c.ndim:
        return c / c
    n = c.shape[0]
    deviation = sqrt(slice_(reshape(c, (-1,)), (0,), (n,), (n + 1,)))  # the diagonal
    return clip(c / reshape(deviation, (-1, 1)) / deviation, -1, 1)
