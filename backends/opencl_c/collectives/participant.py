"""Interface of a backend's devices for exchanges: memory that others write to, and the order of work on streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from polyhal.backends.opencl_c.runtime import Runtime


class Window(NamedTuple):
    """Window of a device of this process."""

    handle: Any
    """Handle in the terms of the backend."""
    nbytes: int
    descriptor: int
    """File descriptor for importers."""


class WindowMemory(Protocol):
    """Memory of one device that other devices can map. Members raise the participant's `failures`."""

    def share_with(self, other: Any) -> bool:
        """Give both devices access to present and future windows of either, if they support it."""

    def window(self, nbytes: int) -> Window | None:
        """Allocate at least `nbytes` and fill them with zeros; None if that is not possible."""

    def import_memory(self, descriptor: int, nbytes: int) -> Any:
        """Return a handle of another device's window by descriptor, which is closed; it lives as long as this device."""


class Participant(Protocol):
    """A device of this process that takes part in exchanges."""

    @property
    def runtime(self) -> Runtime:
        """The open device."""

    @property
    def exchangers(self) -> dict[Any, Any]:
        """Exchangers of groups whose first device this is, None if exchanges fail, with objects that keep keys alive."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Exceptions of the driver."""

    @property
    def recordable(self) -> bool:
        """Return whether exchanges may be recorded in command buffers."""

    def recording(self) -> bool:
        """Return whether launches of the calling thread are being recorded instead of enqueued."""

    def window_memory(self) -> WindowMemory | None:
        """Return memory that other devices can map; None if the device does not support it."""

    def stream(self) -> object:
        """Return the stream of the calling thread."""

    def make_room(self, launches: int) -> None:
        """Let the host enqueue some launches without blocking."""

    def mark(self, again: Any = None) -> Any:
        """Return an event after everything enqueued so far on the thread's stream. It has a method `wait`.

        `again` is an earlier event, whose earlier meaning is not needed any more: it may be returned anew.
        """

    def wait_for(self, event: Any) -> None:
        """Make later work on the thread's stream wait for an event of this device."""

    def flush(self) -> None:
        """Submit everything enqueued so far."""
