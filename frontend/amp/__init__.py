"""Automatic mixed precision: half dtypes for products, and loss scaling, which keeps small gradients from underflowing."""

from polyhal.amp.grad_scaler import GradScaler, GradScalerError
from polyhal.mixed_precision import AutocastError, autocast, is_autocast_enabled

__all__ = ["AutocastError", "GradScaler", "GradScalerError", "autocast", "is_autocast_enabled"]
