"""`ComputeBackend` for described devices: real plans, memory that holds nothing, launches of nothing."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

from polyhal.backends.common.launching.core_methods import Builders, CoreMethods
from polyhal.backends.common.launching.table import LoweringFunction, lower
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

NAME = "described"


class LaunchFacts(Protocol):
    """What launches are built with, and what they are checked against."""

    info: DeviceInfo
    capabilities: Capabilities


class DescribedMemory:
    """An allocation that holds nothing."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class DescribedBackend(CoreMethods):
    """One described device. What is read from it is zeros, which it says once."""

    def __init__(self, runtime: LaunchFacts, builders: Builders, table: Mapping[str, LoweringFunction]) -> None:
        """`table` holds the lowering functions, by op."""
        super().__init__(runtime, builders)
        self.info = runtime.info
        self.capabilities = runtime.capabilities
        self._lowerings = table
        self._lock = threading.Lock()
        self._in_use = 0
        self._has_warned = False

    def memory_available(self) -> int:
        """Return the bytes that the device would have left; of a device that does not tell, those of its largest buffer."""
        return (self.info.memory or self.capabilities.limits.max_allocation) - self._in_use

    def allocate(self, nbytes: int) -> DescribedMemory:
        """Count an allocation. Raises OutOfMemoryError if it is more than the device has, or gives in one piece."""
        with self._lock:
            largest, total = self.capabilities.limits.max_allocation, self.info.memory
            if nbytes > largest or (total and nbytes > total - self._in_use):
                problem = f"allocating {nbytes} bytes, with {self._in_use} in use"
                limit = f"at most {largest} in one piece" + (f" and {total} in all" if total else "")
                raise OutOfMemoryError(message(None, problem, expected=limit, device=self.info.name))
            self._in_use += nbytes
        return DescribedMemory(nbytes)

    def deallocate(self, handle: DescribedMemory) -> None:
        """Release an allocation. Raises BackendError if it was released before."""
        with self._lock:
            if handle.nbytes < 0:
                raise BackendError(message(None, "this memory was released before", device=self.info.name))
            self._in_use -= handle.nbytes
            handle.nbytes = -1

    def copy_to_device(self, src: memoryview, dst: DescribedMemory, offset: int) -> None:
        """Forget the bytes."""

    def copy_from_device(self, src: DescribedMemory, offset: int, dst: memoryview) -> None:
        """Fill `dst` with zeros, and warn at the first time."""
        if not self._has_warned:
            self._has_warned = True
            problem = "this device is only described and computes nothing: all values read from it are 0"
            warnings.warn(message(None, problem, device=self.info.name), stacklevel=2)
        dst.cast("B")[:] = bytes(dst.nbytes)

    def synchronize(self) -> None:
        """Return at once."""

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """Return the launch of the kernel that the device would get, or the reason why there is none."""
        return lower(self._lowerings, self._runtime, op, inputs, outputs, params)
