"""Composites that bring several tensors to common shapes, or combine their elements: grids, products, blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.indexing.rows import take
from polyhal.hal.ops.layout.regions import concat, pad, stack
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.tensor_like import TensorLike


def _several(tensors: tuple[TensorLike, ...]) -> tuple[Any, ...]:
    """Tensors given as separate arguments, or as one sequence."""
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors


@composite("broadcast_arrays", method=False, returns=Returns.VIEW)
def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    """Tensors stretched to the shape that they have in common; one that has it already is returned itself."""
    tensors = _several(tensors)
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x if x.shape == shape else broadcast_to(x, shape) for x in tensors)


@composite(method=False, returns=Returns.VIEW)
def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinates of a grid, one tensor for each vector: axis i runs along vector i with `indexing="ij"`.

    With "xy", the default, the first two axes are exchanged. Raises ValueError for another `indexing`.

    >>> [grid.tolist() for grid in polyhal.meshgrid(polyhal.arange(2), polyhal.arange(2), indexing='ij')]
    [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f'[meshgrid] indexing {indexing!r}; expected "xy" or "ij"')
    vectors = [reshape(x, (math.prod(x.shape),)) for x in _several(tensors)]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    shape = tuple(vectors[i].shape[0] for i in order)
    return tuple(
        broadcast_to(reshape(v, tuple(n if order[a] == i else 1 for a, n in enumerate(shape))), shape)
        for i, v in enumerate(vectors)
    )


# --- a least number of axes -----------------------------------------------------------------------------------------


def _each(function: Callable[[Any], Any], tensors: tuple[TensorLike, ...]) -> Any:
    """The function of one tensor, or of each of several as a tuple."""
    several = _several(tensors)
    return function(several[0]) if several is tensors and len(tensors) == 1 else tuple(function(x) for x in several)


@composite(returns=Returns.VIEW)
def atleast_1d(*tensors: Any) -> Any:
    """The tensor, or each of several, with one axis if it has none."""
    return _each(lambda x: x if x.ndim else reshape(x, (1,)), tensors)


@composite(returns=Returns.VIEW)
def atleast_2d(*tensors: Any) -> Any:
    """The tensor, or each of several, with two axes at least: a vector becomes a row."""
    return _each(lambda x: x if x.ndim > 1 else reshape(x, (1, math.prod(x.shape))), tensors)


@composite(returns=Returns.VIEW)
def atleast_3d(*tensors: Any) -> Any:
    """The tensor, or each of several, with three axes at least: (n,) becomes (1, n, 1) and (m, n) (m, n, 1)."""
    return _each(_with_three_axes, tensors)


def _with_three_axes(x: TensorLike) -> Any:
    if x.ndim > 2:
        return x
    return reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, math.prod(x.shape), 1))


# --- products and blocks --------------------------------------------------------------------------------------------


@composite(method=False, returns=Returns.COPY)
def cartesian_prod(*tensors: Any) -> Any:
    """All combinations of one element of each vector, as rows; of one vector, the vector itself.

    Raises ValueError for tensors that are not vectors.
    """
    vectors = _several(tensors)
    if any(v.ndim != 1 for v in vectors):
        raise ValueError(f"[cartesian_prod] shapes {[tuple(v.shape) for v in vectors]}; expected vectors")
    if len(vectors) == 1:
        return vectors[0]
    return stack([reshape(x, (math.prod(x.shape),)) for x in meshgrid(*vectors, indexing="ij")], 1)


@composite()
def combinations(x: TensorLike, r: int = 2, with_replacement: bool = False) -> Any:
    """All combinations of `r` elements of a vector, as rows, in the order of `itertools.combinations`.

    Raises ValueError for a tensor that is not a vector, and a negative `r`.
    """
    if x.ndim != 1:
        raise ValueError(f"[combinations] shape {x.shape}; expected a vector")
    if r < 0:
        raise ValueError(f"[combinations] r is {r}; expected 0 or more")
    n = x.shape[0]
    count = math.comb(n + r - 1, r) if with_replacement and n else math.comb(n, r)
    check_host_memory("combinations", count * r * 16)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.shape[0]), r)) if r else []
    if not rows:
        return reshape(slice_(x, (0,), (0,), (1,)), (0, r) if r else (0,))
    positions = dispatch.frontend.convert(np.array([i for row in rows for i in row], np.int64), x.device)
    return reshape(take(x, positions, 0), (len(rows), r))


@composite(method=False)
def block_diag(*tensors: Any) -> Any:
    """Matrices along the diagonal of a matrix of zeros; vectors count as rows, numbers as 1 by 1."""
    blocks = [x if x.ndim == 2 else reshape(x, (1, math.prod(x.shape))) for x in _several(tensors) if _is_block(x)]
    width, before, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(pad(block, ((0, 0), (before, width - before - block.shape[1]))))
        before += block.shape[1]
    return concat(rows, 0)


def _is_block(x: TensorLike) -> bool:
    if x.ndim > 2:
        raise ValueError(f"[block_diag] shape {x.shape}; expected at most 2 axes")
    return True
