"""Reverse-mode automatic differentiation on a tape.

`gradcheck` and the module `functional` are loaded when they are first named.
"""

import importlib
from typing import TYPE_CHECKING, Any

from polyhal.autograd.anomaly import detect_anomaly
from polyhal.autograd.checkpoint import checkpoint
from polyhal.autograd.engine import backward, grad
from polyhal.autograd.function import Context, Function
from polyhal.autograd.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from polyhal.autograd import functional
    from polyhal.autograd.gradient_check import GradcheckError, gradcheck, gradgradcheck

_LATER = ("GradcheckError", "gradcheck", "gradgradcheck")


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module(f"{__name__}.functional")
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.gradient_check"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Context",
    "Function",
    "GradcheckError",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
