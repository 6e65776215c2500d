"""Reverse-mode automatic differentiation, under PyTorch's names: the tape, gradient checks, derivatives of functions."""

from polyhal.autograd import functional
from polyhal.autograd.gradient_check import GradcheckError, gradcheck, gradgradcheck
from polyhal.tape.anomaly import detect_anomaly
from polyhal.tape.checkpoint import checkpoint
from polyhal.tape.engine import backward, grad
from polyhal.tape.function import Context, Function
from polyhal.tape.modes import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

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
