"""`ComputeBackend` for described devices: real plans, memory without storage, no-op launches."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import LoweringFunction, lower
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

NAME = "described"


class LaunchFacts(Protocol):
    """Device properties that launches are built from and checked against."""

    info: DeviceInfo
    capabilities: Capabilities


class DescribedMemory:
    """An allocation without storage."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class DescribedBackend(CoreMethods):
    """A described device. Reads return zeros, with a warning at the first read."""

    def __init__(self, runtime: LaunchFacts, builders: Builders, table: Mapping[str, LoweringFunction]) -> None:
        """Create the device; `table` maps ops to lowering functions."""
        super().__init__(runtime, builders)
        self.info = runtime.info
        self.capabilities = runtime.capabilities
        self._lowerings = table
        self._lock = threading.Lock()
        self._in_use = 0
        self._has_warned = False

    def memory_available(self) -> int:
        """Return the remaining bytes of device memory; of the largest buffer if the memory size is unknown."""
        return (self.info.memory or self.capabilities.limits.max_allocation) - self._in_use

    def allocate(self, nbytes: int) -> DescribedMemory:
        """Count an allocation. Raises OutOfMemoryError if it exceeds the device's memory or largest buffer."""
        with self._lock:
            largest, total = self.capabilities.limits.max_allocation, self.info.memory
            if nbytes > largest or (total and nbytes > total - self._in_use):
                problem = f"allocating {nbytes} bytes, with {self._in_use} in use"
                limit = f"at most {largest} in one piece" + (f" and {total} in total" if total else "")
                raise OutOfMemoryError(message(None, problem, expected=limit, device=self.info.name))
            self._in_use += nbytes
        return DescribedMemory(nbytes)

    def deallocate(self, handle: DescribedMemory) -> None:
        """Release an allocation. Raises BackendError if it was already released."""
        with self._lock:
            if handle.nbytes < 0:
                raise BackendError(message(None, "this memory was released before", device=self.info.name))
            self._in_use -= handle.nbytes
            handle.nbytes = -1

    def copy_to_device(self, src: memoryview, dst: DescribedMemory, offset: int) -> None:
        """No-op: the memory has no storage."""

    def copy_from_device(self, src: DescribedMemory, offset: int, dst: memoryview) -> None:
        """Fill `dst` with zeros, and warn at the first read."""
        if not self._has_warned:
            self._has_warned = True
            problem = "this device is only described and computes nothing: all values read from it are 0"
            warnings.warn(message(None, problem, device=self.info.name), stacklevel=2)
        dst.cast("B")[:] = bytes(dst.nbytes)

    def synchronize(self) -> None:
        """No-op: no work is ever pending."""

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        """Return the launch of the kernel for this device, or the reason why it has none."""
        return lower(self._lowerings, self._runtime, op, inputs, outputs, params)
