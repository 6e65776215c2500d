"""`ComputeBackend` for described devices: real plans, memory that holds nothing, launches of nothing."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.core_methods import CoreMethods
from polyhal.backends.common.launching.table import lower
from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, lowering
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.description import DeviceDescription
from polyhal.backends.opencl.described.runtime import DescribedRuntime
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.kernels import tuning
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

NAME = "described"


def probe() -> Sequence[DeviceInfo]:
    """Return all described devices."""
    return [_info(description.load(key)) for key in description.known()]


def create(selector: str) -> DescribedBackend:
    """Open the described device of that name. Raises DeviceUnavailableError that lists all if there is none."""
    return DescribedBackend(description.load(selector))


def _info(described: DeviceDescription) -> DeviceInfo:
    device = described.device
    return DeviceInfo(
        backend=NAME,
        name=f"{described.title} (described)",
        type=discovery.kind(device, device.name),
        memory=device.global_mem_size,
        driver=f"{device.platform.name} {device.driver_version}",
        id=f"{NAME}/{described.key}",
        selector=described.key,
        vendor=device.vendor,
    )


class DescribedMemory:
    """An allocation that holds nothing."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class DescribedBackend(CoreMethods):
    """One described device. What is read from it is zeros, which it says once."""

    def __init__(self, described: DeviceDescription) -> None:
        device = described.device
        self.description = described
        self.info = _info(described)
        profile = probed.profile(device, self.info.type)
        features = probed.features(device, self.info.type, profile)
        self.capabilities = probed.capabilities(device, features)
        choices = tuning.Tuning(features, profile.choices, {})
        self.runtime = DescribedRuntime(described, self.info, features, self.capabilities, choices)
        super().__init__(self.runtime, lowering.BUILDERS)
        self.kernels = self.runtime.programs
        self._lowerings = lowering.table()
        self._lock = threading.Lock()
        self._in_use = 0
        self._has_warned = False

    @property
    def features(self) -> probed.OpenCLFeatures:
        """The facts that kernels and launches are chosen by."""
        return self.runtime.features

    def memory_available(self) -> int:
        """Return the bytes that the device would have left."""
        return self.info.memory - self._in_use

    def allocate(self, nbytes: int) -> DescribedMemory:
        """Count an allocation. Raises OutOfMemoryError if it is more than the device has, or gives in one piece."""
        with self._lock:
            largest = self.capabilities.limits.max_allocation
            if nbytes > largest or nbytes > self.info.memory - self._in_use:
                problem = f"allocating {nbytes} bytes, with {self._in_use} in use"
                limit = f"at most {largest} in one piece and {self.info.memory} in all"
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
        return lower(self._lowerings, self.runtime, op, inputs, outputs, params)
