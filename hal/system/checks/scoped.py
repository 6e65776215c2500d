"""The executor of checked programs: tracks modules and gradients, so that an op can be located."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.scopes import ModuleScopes
from polyhal.hal.core.execution.executor import Executor, thread
from polyhal.hal.core.execution.forwarding import ForwardingExecutor

if TYPE_CHECKING:
    from polyhal.hal.core.execution.location import SourceLocation


class _ThreadScopes(threading.local):
    """Scopes per thread, because threads may share an executor."""

    def __init__(self) -> None:
        self.scopes = ModuleScopes()


class ScopedExecutor(ForwardingExecutor):
    """Forwards ops, and tracks the location in the program."""

    __slots__ = ("_thread",)

    def __init__(self, base: Executor) -> None:
        super().__init__(base)
        self._thread = _ThreadScopes()

    def location(self) -> SourceLocation:
        """Return the location of the current op."""
        return self._thread.scopes.location()

    def call_module(
        self, module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with self._thread.scopes.within_module(module):
            return self.base.call_module(module, function, args, kwargs)

    @property
    def tape_hooks(self) -> ModuleScopes:
        return self._thread.scopes


@contextmanager
def scoped() -> Iterator[None]:
    """Track the modules and gradients of this thread inside the block, below autocast and profilers."""
    above: Any = None
    executor: Any = thread.executor
    while isinstance(executor, ForwardingExecutor) and not isinstance(executor, ScopedExecutor):
        above, executor = executor, executor.base
    if isinstance(executor, ScopedExecutor):
        yield
        return
    inserted = ScopedExecutor(executor)
    if above is None:
        thread.executor = inserted
    else:
        above.base = inserted
    try:
        yield
    finally:
        if above is None:
            thread.executor = executor
        else:
            above.base = executor
