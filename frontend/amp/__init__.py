"""Automatic mixed precision: half dtypes for products, and loss scaling, which keeps small gradients from underflowing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.amp.autocast import AutocastError, autocast, is_autocast_enabled

if TYPE_CHECKING:
    from polyhal.amp.grad_scaler import GradScaler, GradScalerError


def __getattr__(name: str) -> Any:
    # Imported lazily: the tape imports this package, and the scaler needs the tape.
    if name in ("GradScaler", "GradScalerError"):
        from polyhal.amp import grad_scaler

        return getattr(grad_scaler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AutocastError", "GradScaler", "GradScalerError", "autocast", "is_autocast_enabled"]
