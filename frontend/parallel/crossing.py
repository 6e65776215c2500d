"""Tensors on their way from one device to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal import dispatch
from polyhal.hal.capture.fake_buffer import FakeBuffer
from polyhal.tensor import Tensor, wrap

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np

    from polyhal.hal.device import Device


class Crossing:
    """A copy of `x` to another device, off the tape, that starts now.

    The read is enqueued behind what makes `x` and before all later work of its device, so that whoever receives it does not
    wait for that work. A captured step records one transfer, where the tensor is received.
    """

    __slots__ = ("_arriving", "_x")

    def __init__(self, x: Tensor, target: Device | None = None) -> None:
        """With a `target` that `x` is on already, nothing starts."""
        self._x = x
        self._arriving: Future[np.ndarray] | None = None
        if target is not None and target is not x.device and not isinstance(x.buffer, FakeBuffer):
            self._arriving = dispatch.thread.executor.read_async(x)

    def receive(self, device: Device) -> Tensor:
        """The tensor on `device`; itself if it is there already."""
        x = self._x
        if x.device is device:
            return x
        if self._arriving is None:
            moved: Tensor = dispatch.thread.executor.transfer(x, device)
            return moved
        event = getattr(self._arriving, "event", None)
        if event is not None:
            event.wait()  # also if the bytes are there: a simulated host's clock moves when it waits
        return wrap(device, *device.upload(self._arriving.result(), x.dtype, non_blocking=True))
