"""Asynchronous copies of tensors from one device to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
from polyhal.hal.core import dispatch
from polyhal.tensor import Tensor, wrap

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.device import Device


class Crossing:
    """A copy of `x` to another device, off the tape, that starts on construction.

    The read is enqueued directly after the producer of `x`, before all later work of its device, so that the receiver does not
    wait for that work. A captured step records one transfer, at the point where the tensor is received.
    """

    __slots__ = ("_arriving", "_x")

    def __init__(self, x: Tensor, target: Device | None = None) -> None:
        """Start the read. No-op if `x` is on `target` already."""
        self._x = x
        self._arriving: Future[np.ndarray] | None = None
        if target is not None and target is not x.device and not isinstance(x.buffer, FakeBuffer):
            self._arriving = dispatch.thread.executor.read_async(x)

    def receive(self, device: Device) -> Tensor:
        """Return the tensor on `device`; `x` itself if it is on that device already."""
        x = self._x
        if x.device is device:
            return x
        if self._arriving is None:
            moved: Tensor = dispatch.thread.executor.transfer(x, device)
            return moved
        event = getattr(self._arriving, "event", None)
        if event is not None:
            event.wait()  # even if the bytes have arrived: a simulated host's clock advances when it waits
        return wrap(device, *device.upload(self._arriving.result(), x.dtype, non_blocking=True))
