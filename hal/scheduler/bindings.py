"""Memory of a replay that may be another at each run: arguments and results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Ref, Spec
from polyhal.hal.memory.buffer import Buffer, Part
from polyhal.hal.memory.pool import bucket
from polyhal.hal.protocol import BindingSlot

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Moving:
    """Memory that moves, and the references into it."""

    __slots__ = ("_refs", "place")

    def __init__(self) -> None:
        self.place = BindingSlot()
        self._refs: list[tuple[Ref, int]] = []

    def reference(self, spec: Spec, offset: int) -> Ref:
        """A reference that is moved along."""
        ref = Ref(None, spec, offset)
        self._refs.append((ref, offset))
        return ref

    def recorded(self, ref: Ref) -> Ref:
        """What stands for a reference in recordings."""
        offset = next(offset for own, offset in self._refs if own is ref)
        return Ref(self.place, ref.spec, offset)

    def put(self, handle: Any, offset: int) -> bool:
        """Move; whether it lay somewhere else."""
        place = self.place
        if place.handle is handle and place.offset == offset:
            return False
        place.handle, place.offset = handle, offset
        for ref, delta in self._refs:
            ref.handle, ref.offset = handle, offset + delta
        return True


class Result:
    """Memory of a result: the same at every run, unless someone still holds the last result.

    Tensors that the step itself leaves behind, such as gradients, get the new values in any case: that they hold the last
    ones is no reason for new memory. `home`, a buffer and an offset in elements, is memory that the step uses for other
    things until it makes the result.
    """

    __slots__ = ("buffer", "device", "home", "left", "moving", "spec")

    def __init__(self, spec: Spec, device: Device, home: tuple[Buffer, int] | None = None) -> None:
        self.spec = spec
        self.device = device
        self.home = home
        self.moving = Moving()
        self.buffer: Buffer | None = None
        self.left: Sequence[Any] = ()
        """Tensors that the step leaves behind in this memory."""

    def is_free(self) -> bool:
        """Whether it has memory, and nobody else uses that."""
        buffer = self.buffer
        if buffer is None:
            return False
        # One reference is ours, one this function's, one the argument of getrefcount.
        others = sys.getrefcount(buffer) - 3
        for tensor in self.left:
            others -= tensor.buffer is buffer
        return not others

    def renew(self) -> bool:
        """Have other memory; whether it lies elsewhere."""
        if self.home is not None:
            whole, offset = self.home
            self.buffer = Part(whole)
            return self.moving.put(whole.handle, offset)
        self.buffer = self.device.pool.take(bucket(self.spec.nbytes))
        return self.moving.put(self.buffer.handle, 0)
