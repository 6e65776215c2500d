"""New tensors from numbers. PyTorch composes the other factories from `empty` and `fill_`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polyhal
from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, default_dtype, zeros

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType


@aten("arange.start_step")
def arange_step(
    start: float, end: float, step: float = 1, dtype: DType | None = None, device: Device | None = None
) -> Any:
    return F["arange"](start, end, step, default_dtype(dtype, start, end, step), device=device)


@aten("arange")
def arange(end: float, dtype: DType | None = None, device: Device | None = None) -> Any:
    return arange_step(0, end, 1, dtype, device)


@aten("arange.start")
def arange_start(start: float, end: float, dtype: DType | None = None, device: Device | None = None) -> Any:
    return arange_step(start, end, 1, dtype, device)


@aten("linspace")
def linspace(start: float, end: float, steps: int, *, dtype: DType | None = None, device: Device | None = None) -> Any:
    return polyhal.linspace(start, end, steps, dtype=dtype or dtypes.float32, device=device)


@aten("logspace")
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
) -> Any:
    return polyhal.logspace(start, end, steps, base, dtype=dtype or dtypes.float32, device=device)


@aten("eye", "eye.m")
def eye(rows: int, columns: int | None = None, *, dtype: DType | None = None, device: Device | None = None) -> Any:
    if min(rows, rows if columns is None else columns) < 0:
        raise RuntimeError(f"lengths must be greater or equal to 0, got {rows} and {columns}")
    return polyhal.eye(rows, columns, dtype=dtype or dtypes.float32, device=device)


@aten("tril_indices")
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None
) -> Any:
    return polyhal.tril_indices(row, col, offset, dtype=dtype or dtypes.int64, device=device)


@aten("triu_indices")
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Device | None = None
) -> Any:
    return polyhal.triu_indices(row, col, offset, dtype=dtype or dtypes.int64, device=device)


@aten("_efficientzerotensor")
def known_zeros(size: Sequence[int], *, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return zeros in memory; on its own devices, PyTorch represents zero gradients without memory."""
    return zeros(tuple(size), dtype or dtypes.float32, device)
