"""`torch.use_deterministic_algorithms`: Polyhal's setting follows it, and new memory is filled as on other devices."""

from __future__ import annotations

import math
from typing import Any

import torch

from polyhal.hal.core.dispatch.bounds import is_debug
from polyhal.hal.core.dispatch.poison import poison
from polyhal.hal.core.settings.state import settings
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Number
from polyhal.torch import private


def install() -> None:
    """Follow later changes of PyTorch's setting. Sums that use atomic additions are then ordered."""
    if torch.are_deterministic_algorithms_enabled():
        _follow(True)
    private.call_with_deterministic_mode(_follow)


def _follow(mode: bool) -> None:
    settings.deterministic = mode


def initial_value(dtype: DType) -> Number | None:
    """Return the number for elements of new memory: PyTorch's in deterministic mode, or debug mode's; None for neither.

    PyTorch fills with NaN, True or the largest integer, unless `torch.utils.deterministic.fill_uninitialized_memory` is False.
    """
    if settings.deterministic and _pytorch_fills():
        if dtype.kind == "float":
            return math.nan  # one object, so that recordings of it are equal
        return True if dtype.kind == "bool" else torch.iinfo(getattr(torch, dtype.name)).max
    return poison(dtype) if is_debug() else None


def _pytorch_fills() -> bool:
    options: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(options.fill_uninitialized_memory)
