"""Paths of PyTorch's modules in profiles: `polyhal.profile` follows calls of modules while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from polyhal.hal.compile.capture.scopes import ModuleScopes
from polyhal.profiler.profile import MODULE_FOLLOWERS


@contextmanager
def following_modules(scopes: ModuleScopes) -> Iterator[None]:
    """Let ops in the block that this thread calls belong to the module of PyTorch in whose `forward` they run."""
    thread = threading.get_ident()
    entered: list[AbstractContextManager[None]] = []

    def enter(module: Any, args: Any) -> None:
        if threading.get_ident() == thread:
            scope = scopes.within_module(module)
            scope.__enter__()
            entered.append(scope)

    def leave(module: Any, args: Any, result: Any) -> None:
        if threading.get_ident() == thread and entered:
            entered.pop().__exit__(None, None, None)

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        while entered:  # modules whose call encloses the whole block
            entered.pop().__exit__(None, None, None)


def install() -> None:
    """Let profiles follow modules of PyTorch."""
    MODULE_FOLLOWERS.append(following_modules)


__all__ = ["following_modules", "install"]
