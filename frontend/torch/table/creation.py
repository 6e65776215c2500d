"""New tensors from numbers. What is not here PyTorch makes of `empty` and `fill_`."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, default_dtype


@aten("arange.start_step")
def arange_step(start: Any, end: Any, step: Any = 1, dtype: Any = None, device: Any = None) -> Any:
    return F["arange"](start, end, step, default_dtype(dtype, start, end, step), device=device)


@aten("arange")
def arange(end: Any, dtype: Any = None, device: Any = None) -> Any:
    return arange_step(0, end, 1, dtype, device)


@aten("arange.start")
def arange_start(start: Any, end: Any, dtype: Any = None, device: Any = None) -> Any:
    return arange_step(start, end, 1, dtype, device)
