"""Command buffers for backends in tests: calls are recorded with their arguments, which each submission looks up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from polyhal.hal.command_buffers import BindingSlot, RecordedLaunch
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Ref


class RecordedCalls:
    """A command buffer."""

    def __init__(self, calls: list[tuple[int, str, Callable[[], None]]]) -> None:
        self.launches = [RecordedLaunch(call, name) for call, name, _ in calls]
        self.calls = calls

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Run all calls."""
        for _, _, run in self.calls:
            run()


class RecordsCalls:
    """Adds `record` to a backend that passes its members and launches through `enqueue`."""

    _recorded: list[tuple[int, str, Callable[[], None]]] | None = None
    _call = 0

    @property
    def is_recording(self) -> bool:
        """True while a command buffer is recorded."""
        return self._recorded is not None

    def enqueue(self, name: str, function: Callable[..., None], *args: Any) -> None:
        """Call a function, or record the call."""
        if self._recorded is None:
            function(*args)
        else:
            self._recorded.append((self._call, name, lambda: function(*map(present, args))))

    def record(self, calls: Sequence[Callable[[], None]]) -> RecordedCalls:
        """Record the functions that `calls` enqueue."""
        self._recorded = []
        try:
            for self._call, call in enumerate(calls):
                call()
            return RecordedCalls(self._recorded)
        finally:
            self._recorded = None


def present(value: Any) -> Any:
    """Return an argument with the memory that is bound to its slot, or the current value of a runtime scalar."""
    if isinstance(value, Ref) and isinstance(value.handle, BindingSlot):
        return Ref(value.handle.handle, value.spec, value.offset + value.handle.offset)
    return value.value if isinstance(value, RuntimeScalar) else value
