"""The queue of a device: a CUDA stream, entered around each call of a library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import cupy
from cupy.cuda import runtime as cuda

from polyhal.backends.common.launching.completion import Callback, run_callback
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.errors import PolyhalError
from polyhal_cupy import error_mapping


class Stream:
    """One stream of one device, which does not wait for CUDA's default stream."""

    def __init__(self, number: int, info: DeviceInfo) -> None:
        self.number = number
        self.info = info
        with translated("opening the device", info.name):
            cuda.setDevice(number)
            self.stream = cupy.cuda.Stream(non_blocking=True)

    @contextmanager
    def entered(self, action: str) -> Iterator[None]:
        """Make the stream current, because CuPy's functions enqueue to the current stream of the calling thread.

        Raises typed errors that name `action`.
        """
        with translated(action, self.info.name):
            cuda.setDevice(self.number)
            with self.stream:
                yield

    def finish(self) -> None:
        """Wait for all enqueued work. Raises the typed error of work that failed."""
        with self.entered("waiting for the device"):
            self.stream.synchronize()


class StreamEvent:
    """A point in the stream; implements `CompletionEvent`. It keeps `keep` alive until it is complete."""

    __slots__ = ("_event", "_keep", "_name")

    def __init__(self, stream: Stream, keep: object = None) -> None:
        self._name = stream.info.name
        self._event = cupy.cuda.Event(disable_timing=True)
        self._event.record(stream.stream)
        self._keep = keep

    def wait(self) -> None:
        """Block until all work before the event is done. Raises the typed error of work that failed."""
        with translated("waiting for a transfer", self._name):
            self._event.synchronize()
        self._keep = None

    def is_complete(self) -> bool:
        """Return whether all work before the event is done."""
        return bool(self._event.done)

    def let_wait(self, stream: Stream) -> None:
        """Make later work of a device, possibly another one, wait for the event."""
        stream.stream.wait_event(self._event)

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when all work before the event is done. Few events have callbacks, so each uses a separate thread."""
        if self.is_complete():
            self._call(callback)
        else:
            threading.Thread(target=self._call, args=(callback,), name="stream event", daemon=True).start()

    def _call(self, callback: Callback) -> None:
        failure: PolyhalError | None = None
        try:
            self.wait()
        except PolyhalError as error:
            failure = error
        run_callback(callback, failure)


@contextmanager
def translated(action: str, device: str) -> Iterator[None]:
    """Raise CUDA's errors as Polyhal's."""
    try:
        yield
    except error_mapping.ERRORS as error:
        raise error_mapping.translate(error, action, device) from error
