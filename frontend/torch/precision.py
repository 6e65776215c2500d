"""`torch.set_float32_matmul_precision` and the flags of TF32: Polyhal's precision of float32 products follows them."""

from __future__ import annotations

from typing import Any

from polyhal.hal.core.settings.state import settings
from polyhal.torch import private


def install() -> None:
    """Follow later changes of PyTorch's setting; a setting of before counts unless it is the default."""
    private.call_after_matmul_precision(_follow)
    if private.matmul_precision() != "highest":
        _follow()


def _follow() -> None:
    precision: Any = private.matmul_precision()
    settings.precision = precision
