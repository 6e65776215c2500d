"""Command buffers: packets that are prepared once and submitted many times, each time by one indirect packet.

A buffer is one block of host memory: the dispatch packets, then their arguments. It is a template: a submission patches
the arguments that have changed, and sends the device a copy, because the previous copy may still be in use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyhal.backends.common.launching.runtime_scalars import Numbers
from polyhal.backends.sim.kernel_arguments import ARGUMENT_BYTES, encode_arguments, patch_argument
from polyhal.backends.sim.packets import DISPATCH_ARRAY, PACKET_BYTES, Dispatch, Header, Indirect
from polyhal.backends.sim.timing import submission_ns
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot, RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.sim.driver import SimDriver
    from polyhal.backends.sim.launch import KernelCall


class SimCommandBuffer:
    """Recorded dispatches. Implements `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self, driver: SimDriver, calls: Sequence[KernelCall], origins: Sequence[int], kept: Sequence[object] = ()
    ) -> None:
        """Encode the packets. `origins` holds, for each launch, the index of its call; `kept` is kept alive with the buffer."""
        self._driver = driver
        self._kept = kept
        names = [driver.gpu.kernels[kernel].name for kernel, _ in calls]
        self.launches = tuple(RecordedLaunch(i, name) for i, name in zip(origins, names, strict=True))
        self._slots: dict[BindingSlot, list[tuple[int, Ref]]] = {}
        """Byte offset and reference of each argument in the block, by slot."""
        self._numbers: Numbers[int] = Numbers()
        """Numbers that change from run to run, with their byte offsets."""
        packets, arguments = bytearray(), bytearray()
        for number, (kernel, values) in enumerate(calls):
            start = len(calls) * PACKET_BYTES + len(arguments)
            packets += Dispatch(Header(number, 0), kernel, start, len(values)).encode()
            arguments += encode_arguments([self._follow(v, start + i * ARGUMENT_BYTES) for i, v in enumerate(values)])
        self._block = packets + arguments
        profile, kernels = driver.gpu.profile, driver.gpu.kernels
        host_ns = [submission_ns(profile, kernels[kernel].cost) for kernel, _ in calls]
        self._host_ns = sum(host_ns)
        self._remaining = np.array([sum(host_ns[i + 1 :]) for i in range(len(host_ns))], np.uint64)
        """Host time from each packet's submission to the last packet's."""

    def _follow(self, value: object, place: int) -> object:
        """Register an argument that may change, and return its value until the first submission."""
        if isinstance(value, Ref) and isinstance(value.handle, BindingSlot):
            self._slots.setdefault(value.handle, []).append((place, value))
            return None
        if isinstance(value, RuntimeScalar):
            self._numbers.follow(value, place)
            return None
        return value

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Patch changed arguments, and enqueue a copy of the packets.

        The device starts as soon as the host has submitted the first of them.
        """
        for slot in rebound:
            for place, ref in self._slots.get(slot, ()):
                patch_argument(self._block, place, Ref(slot.handle, ref.spec, slot.offset + ref.offset))
        for value, places in self._numbers.changed():
            for place in places:
                patch_argument(self._block, place, value)
        block, count = bytearray(self._block), len(self.launches)
        pinned = self._driver.gpu.pinned_memory.pin(block)

        def indirect(header: Header) -> Indirect:
            packets = np.frombuffer(block, DISPATCH_ARRAY, count)
            packets["sequence"] += np.uint64(header.sequence + 1)
            packets["submitted_ns"] = np.uint64(header.submitted_ns) - self._remaining
            packets["arguments"] += np.uint64(pinned)
            return Indirect(header._replace(submitted_ns=int(packets["submitted_ns"][0])), pinned, count)

        self._driver.clock.advance(self._host_ns)
        self._driver.submit(indirect, pinned=pinned, commands=count + 1, profiled=count)
