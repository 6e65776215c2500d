"""Remedy in errors about a lost device, for all backends."""

from __future__ import annotations

REOPEN = (
    "its tensors are gone: open it again with Device(name), and load the last checkpoint; "
    "if that fails too, restart the process"
)
