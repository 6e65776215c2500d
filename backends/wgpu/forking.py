"""Forked children do not release wgpu objects: the library would deadlock on threads that do not survive a fork."""

from __future__ import annotations

import functools
import os
from typing import Any


@functools.cache
def release_nothing_in_children() -> None:
    """Register a fork handler that disables releases in children of this process. Called when a device is opened."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_release_nothing)


def _release_nothing() -> None:
    import wgpu

    public = [kind for kind in vars(wgpu).values() if isinstance(kind, type)]
    for kind in {base for derived in public for base in derived.__mro__ if base.__module__.startswith("wgpu.")}:
        if "__del__" in vars(kind):
            kind.__del__ = _nothing  # type: ignore[attr-defined]


def _nothing(_: Any) -> None:
    pass
