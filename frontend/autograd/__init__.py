"""Reverse-mode automatic differentiation on a tape."""

from polyhal.autograd.anomaly import detect_anomaly
from polyhal.autograd.checkpoint import checkpoint
from polyhal.autograd.engine import backward, grad
from polyhal.autograd.function import Context, Function
from polyhal.autograd.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Context",
    "Function",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
