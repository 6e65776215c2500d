"""Kernels that create zeros and ones: one op each, where PyTorch's own allocate memory and then fill it.

Autograd creates ones for a loss, and zeros for each result of a compiled graph that the loss does not depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from polyhal.hal.ops import FUNCTIONS
from polyhal.torch import tensors
from polyhal.torch.device import NAME, check_ordinal, current
from polyhal.torch.failures import as_pytorch

_PRESERVING = (None, torch.preserve_format)


def _filled(value: int, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in row-major order whose elements are all `value`."""
    if dtype.is_complex:
        return tensors.allocate(tuple(size), dtype).fill_(value)
    return tensors.wrap(FUNCTIONS["full"](tuple(size), value, tensors.dtype_of(dtype), device=current()))


def _of_size(
    value: int,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **options: Any,
) -> torch.Tensor:
    check_ordinal(device)
    return _filled(value, size, dtype or torch.get_default_dtype())


def _like(
    value: int,
    x: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    memory_format: Any = None,
    **options: Any,
) -> torch.Tensor:
    row_major = memory_format is torch.contiguous_format or (memory_format in _PRESERVING and x.is_contiguous())
    if row_major and (device is None or device.type == NAME):
        check_ordinal(device)
        return _filled(value, x.shape, dtype or x.dtype)
    return torch.empty_like(x, dtype=dtype, device=device, memory_format=memory_format).fill_(value)


KERNELS: dict[str, Callable[..., Any]] = {
    f"{name}{form}.default": as_pytorch(partial(kernel, value))
    for name, value in (("zeros", 0), ("ones", 1))
    for form, kernel in (("", _of_size), ("_like", _like))
}
"""Kernels by overload."""
