"""The core members of the contract on arrays. Each writes its last argument, the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.reference.arrays import store, upcast
from polyhal.backends.common.reference.functions import BINARY, REDUCE, UNARY

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def copy(src: np.ndarray, out: np.ndarray) -> None:
    """Copy with a cast."""
    store(src, out)


def unary(op: str, x: np.ndarray, out: np.ndarray) -> None:
    """Compute `out = op(x)` elementwise."""
    store(UNARY[op](upcast(x)), out)


def binary(op: str, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute `out = a op b` elementwise."""
    store(BINARY[op](upcast(a), upcast(b)), out)


def where(cond: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute `out = a if cond else b` elementwise."""
    out[...] = np.where(cond, a, b)


def reduce(op: str, x: np.ndarray, out: np.ndarray) -> None:
    """Reduce the last axis of `x`."""
    store(REDUCE[op](upcast(x)), out)


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Multiply the matrices of two batches."""
    with np.errstate(all="ignore"):
        store(np.matmul(upcast(a), upcast(b)), out)


def gather(index: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Copy the rows of `x` selected by `index`; zeros for indices out of range."""
    in_range = (index >= 0) & (index < len(x))
    out[...] = np.where(in_range[:, None], x[np.where(in_range, index, 0)], x.dtype.type(0))


def scatter_add(index: np.ndarray, src: np.ndarray, out: np.ndarray) -> None:
    """Add the rows of `src` to the rows of `out` selected by `index`; indices out of range are skipped."""
    in_range = (index >= 0) & (index < len(out))
    np.add.at(out, index[in_range], src[in_range])


def run_function(function: Callable[..., Any], params: Params, inputs: list[Any], outs: list[np.ndarray]) -> None:
    """Store the results of a function of arrays and numbers: the reference of an op, or a user kernel."""
    arrays = [upcast(x) if isinstance(x, np.ndarray) else x for x in inputs]
    with np.errstate(all="ignore"):
        result = function(*arrays, **params)
        for value, out in zip(result if isinstance(result, tuple) else (result,), outs, strict=True):
            out[...] = value
