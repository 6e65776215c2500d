"""The lower and upper triangle of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops import batching
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    Names,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    if spec.ndim < 2:
        raise ValueError(f"got shape {spec.shape}; expected at least 2 axes")
    return [(spec.dtype, spec.shape)]


def _below(x: TensorLike, diagonal: int) -> Any:
    """True strictly below diagonal number `diagonal`, which counts from the main diagonal upwards."""
    rows, columns = x.shape[-2:]
    i = reshape(arange(diagonal, rows + diagonal, 1, dtypes.int32), (rows, 1))
    return less(reshape(arange(0, columns, 1, dtypes.int32), (1, columns)), i)


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((3, 5), 0), ((5, 3), 1), ((2, 4, 4), -2), ((33, 33), 0), ((0, 3), 0)]
    return [Sample((rng.uniform(0.5, 1, s),), {"diagonal": d}) for s, d in cases]


_ERRORS = [ErrorSample((np.zeros(3),), {"diagonal": 0}, ValueError, "at least 2 axes")]


def _tril(x: Array, *, diagonal: int = 0) -> Any:
    """The elements on and below diagonal number `diagonal` of the last two axes; zeros above."""
    return np.tril(x, diagonal)


def _triu(x: Array, *, diagonal: int = 0) -> Any:
    """The elements on and above diagonal number `diagonal` of the last two axes; zeros below."""
    return np.triu(x, diagonal)


tril: OpFunction = declare(
    _tril,
    name="tril",
    family="triangle",
    infer=_infer,
    lowering=Decompose(lambda x, *, diagonal: where(_below(x, diagonal + 1), x, False), widen=False),
    batching=batching.leading,
    gradient=lambda g, *, diagonal: tril(g, diagonal),
    samples=_samples,
    errors=_ERRORS,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    names=Names(in_place=True, aten=".default"),
)
triu: OpFunction = declare(
    _triu,
    name="triu",
    family="triangle",
    infer=_infer,
    lowering=Decompose(lambda x, *, diagonal: where(_below(x, diagonal), False, x), widen=False),
    batching=batching.leading,
    gradient=lambda g, *, diagonal: triu(g, diagonal),
    samples=_samples,
    errors=_ERRORS,
    dtypes=dtypes.ALL,
    tolerance=Tolerance(0.0),
    names=Names(in_place=True, aten=".default"),
)
