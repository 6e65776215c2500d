"""Automatic mixed precision: half dtypes for products, and scaled losses so that small gradients survive float16."""

from __future__ import annotations

from polyhal.amp.autocast import AutocastError, autocast, is_autocast_enabled

__all__ = ["AutocastError", "autocast", "is_autocast_enabled"]
