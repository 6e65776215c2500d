"""Rebindable memory of a replay: inputs and results whose address may change in each run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.memory.buffer import Buffer, SubBuffer
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.errors import OutOfMemoryError, out_of_memory_in
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Rebindable:
    """Memory whose address may change between runs, and the references into it."""

    __slots__ = ("_refs", "slot")

    def __init__(self) -> None:
        self.slot = BindingSlot()
        """Placeholder of the memory in command buffers."""
        self._refs: list[tuple[Ref, int]] = []

    def reference(self, spec: Spec, offset: int) -> Ref:
        """Return a reference that follows the memory, `offset` elements from its start."""
        ref = Ref(None, spec, offset)
        self._refs.append((ref, offset))
        return ref

    def recorded(self, ref: Ref) -> Ref:
        """Return the counterpart of `ref` in command buffers."""
        offset = next(offset for own, offset in self._refs if own is ref)
        return Ref(self.slot, ref.spec, offset)

    def bind(self, handle: Any, offset: int) -> bool:
        """Point to other memory. Returns whether the address changed."""
        slot = self.slot
        if slot.handle is handle and slot.offset == offset:
            return False
        slot.handle, slot.offset = handle, offset
        for ref, delta in self._refs:
            ref.handle, ref.offset = handle, offset + delta
        return True


class ResultMemory:
    """Memory of a result: reused in each run, unless the program still references the previous result.

    Live-outs of the step, such as gradients, are rebound to the new values in any case, so they do not count as users. `home`,
    a buffer and an offset in elements, is memory that the step uses for other values before the result is computed.
    """

    __slots__ = ("_size", "binding", "buffer", "device", "home", "live_outs", "spec")

    def __init__(self, spec: Spec, device: Device, home: tuple[Buffer, int] | None = None) -> None:
        self.spec = spec
        self._size = bucket(spec.nbytes)
        self.device = device
        self.home = home
        self.binding = Rebindable()
        self.buffer: Buffer | None = None
        self.live_outs: Sequence[Any] = ()
        """Live-out tensors of the step that are stored in this memory."""

    def is_free(self) -> bool:
        """Return whether memory is allocated and only this object references it."""
        buffer = self.buffer
        if buffer is None:
            return False
        others = sys.getrefcount(buffer)
        if self.live_outs:
            for tensor in self.live_outs:
                others -= tensor.buffer is buffer
        return others == 3  # the references of `self`, of this frame and of the argument of getrefcount

    def renew(self) -> bool:
        """Allocate other memory. Returns whether the address changed. Raises OutOfMemoryError."""
        if self.home is not None:
            whole, offset = self.home
            self.buffer = SubBuffer(whole)
            return self.binding.bind(whole.handle, offset)
        try:
            self.buffer = self.device.pool.take(self._size)
        except OutOfMemoryError as error:
            raise out_of_memory_in("captured step", error) from error
        return self.binding.bind(self.buffer.handle, 0)
