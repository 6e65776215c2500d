"""Asynchronous read-back: copies from a device to the host that the program does not wait for.

The copy is ordered in the device's work, so the tensor may be changed or released at once. The result is a standard
future, completed by a thread of the backend.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.protocol import Event, Handle, SupportsAsyncRead

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


def finished(value: T) -> Future[T]:
    """Return a completed future."""
    future: Future[T] = _new_future()
    future.set_result(value)
    return future


def start_read(backend: SupportsAsyncRead, handle: Handle, offset: int, out: np.ndarray) -> Future[np.ndarray]:
    """Start to fill the contiguous array `out` from byte `offset` of `handle`. Returns the future of `out`.

    The future cannot be cancelled. It raises the typed error of work that failed.
    """
    event = backend.copy_from_device_async(handle, offset, byte_view(out))
    future: Future[np.ndarray] = _new_future(event)

    def complete(error: BaseException | None) -> None:
        # The reference to `out` here keeps the memory alive until the copy is done.
        if error is None:
            future.set_result(out)
        else:
            future.set_exception(error)

    event.add_callback(complete)
    return future


def combined(futures: tuple[Future[Any], ...], combine: Callable[..., T]) -> Future[T]:
    """Return the future of `combine(*results)`. The last of the futures to finish computes it."""
    future: Future[T] = _new_future()
    finishes = itertools.count(1)

    def one_done(_: Future[Any]) -> None:
        if next(finishes) < len(futures):  # `next` is atomic
            return
        try:
            future.set_result(combine(*(f.result() for f in futures)))
        except BaseException as error:
            future.set_exception(error)

    for each in futures:
        each.add_done_callback(one_done)
    return future


def _new_future(event: Event | None = None) -> Future[Any]:
    from polyhal.hal.core.memory.read_future import ReadFuture

    return ReadFuture(event)
