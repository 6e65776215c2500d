"""Views, for callers without PyTorch tensors, and ops that join tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten, aten_view
from polyhal.torch.table.operands import F, cast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten_view("permute")
def permute(x: Tensor, dims: Sequence[int]) -> Any:
    return F["permute"](x, tuple(dims))


@aten_view("transpose.int")
def transpose(x: Tensor, dim0: int, dim1: int) -> Any:
    return F["transpose"](x, dim0, dim1) if x.shape else x


@aten_view("t")
def t(x: Any) -> Any:
    return F["permute"](x, (1, 0)) if x.ndim == 2 else x


@aten_view("view", "_unsafe_view")
def view(x: Tensor, size: Sequence[int]) -> Any:
    known = math.prod(n for n in size if n != -1)
    return F["reshape"](x, tuple((x.size // known if known else 0) if n == -1 else n for n in size))


@aten_view("expand")
def expand(x: Tensor, size: Sequence[int], implicit: bool = False) -> Any:
    lead = len(size) - x.ndim
    return F["broadcast_to"](x, tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)))


@aten("cat")
def cat(xs: Sequence[Tensor], dim: int = 0) -> Any:
    """Concatenate along an axis. Vectors of length 0 are skipped, as PyTorch does for old programs."""
    kind = reduce(dtypes.promote, [x.dtype for x in xs])
    parts = [cast(x, kind) for x in xs if x.shape != (0,)]
    return F["concat"](parts, dim) if parts else cast(xs[0], kind)


@aten("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Any:
    return F["flip"](x, tuple(dims)) if dims else F["copy"](x)


@aten("roll")
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not shifts or (dims and len(shifts) != len(dims)) or (not dims and len(shifts) > 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if dims and not x.shape:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return F["roll"](x, tuple(shifts), tuple(dims) if dims else None)
