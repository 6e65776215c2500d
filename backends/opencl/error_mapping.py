"""Error mapping: OpenCL status codes as Polyhal's typed errors, each with its likely cause and a remedy.

Drivers use few codes for many causes. So a message names the likely one, and the device limits that may be exceeded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyopencl as cl

from polyhal.backends.common.lost_devices import REOPEN
from polyhal.hal.errors import BackendError, DeviceLostError, KernelBuildError, OutOfMemoryError, PolyhalError, message

_Status: Any = cl.status_code
_ILLEGAL_ACCESS = -9999
"""NVIDIA's undocumented code for an illegal access or a hung kernel, after which the context is unusable."""

_REPORT = "report this with the output of `polyhal doctor`"
_SMALLER = "drop tensors that are no longer needed, or use a smaller batch"
RETUNE = (
    "in a kernel of your own use a smaller `group`; else `polyhal tune --reset` forgets tuned sizes, "
    "or report this with the output of `polyhal doctor`"
)
"""Remedy for a work-group that is too large."""


class DeviceLimits(NamedTuple):
    """Device limits that error messages quote; 0 where unknown."""

    memory: int = 0
    """Bytes of device memory."""
    allocation: int = 0
    """Bytes of the largest allocation."""
    group: int = 0
    """Work-items of the largest work-group."""
    group_axes: tuple[int, ...] = ()
    """Work-items of the largest work-group per axis."""
    local_memory: int = 0
    """Bytes of local memory per work-group."""

    @classmethod
    def of(cls, device: cl.Device) -> DeviceLimits:
        """Query a device's limits."""
        return cls(
            int(device.global_mem_size),
            int(device.max_mem_alloc_size),
            int(device.max_work_group_size),
            tuple(int(n) for n in device.max_work_item_sizes),
            int(device.local_mem_size),
        )

    def for_memory(self) -> str:
        """Return the memory limits as text; empty if they are unknown."""
        if not self.memory:
            return ""
        return f"the device has {self.memory >> 20} MiB, at most {self.allocation >> 20} MiB in one piece"

    def for_groups(self) -> str:
        """Return the work-group limits as text; empty if they are unknown."""
        if not self.group:
            return ""
        axes = " x ".join(map(str, self.group_axes))
        return f"groups of at most {self.group} work-items, {axes} per axis, and {self.local_memory >> 10} KiB of local memory"


class _Cause(NamedTuple):
    """Interpretation of a status code: error type, cause and remedy."""

    error: type[PolyhalError]
    problem: str
    fix: str
    memory: bool = False
    """True if the message quotes memory limits."""
    groups: bool = False
    """True if the message quotes work-group limits."""


_LOST: dict[int, str] = {
    _Status.DEVICE_NOT_AVAILABLE: "the device was unplugged, reset or given to somebody else",
    # Queues and contexts live as long as the device is open, so only the driver can have closed them.
    _Status.INVALID_COMMAND_QUEUE: "the driver has closed the queue, as after a kernel that crashed or ran for too long",
    _Status.INVALID_CONTEXT: "the driver has closed the context, as after a kernel that crashed or ran for too long",
    _ILLEGAL_ACCESS: "a kernel has accessed memory out of bounds, or ran for longer than the system allows",
}
_CAUSES: dict[int, _Cause] = {
    _Status.MEM_OBJECT_ALLOCATION_FAILURE: _Cause(
        OutOfMemoryError, "the device has no memory for it", _SMALLER, memory=True
    ),
    _Status.OUT_OF_HOST_MEMORY: _Cause(OutOfMemoryError, "the host has no memory left for the driver", _SMALLER),
    _Status.OUT_OF_RESOURCES: _Cause(
        OutOfMemoryError,
        "the device has no memory, registers or local memory for it",
        f"{_SMALLER}; if there is plenty, a work-group is too large: {RETUNE}",
        memory=True,
        groups=True,
    ),
    _Status.INVALID_BUFFER_SIZE: _Cause(
        OutOfMemoryError, "the device has no memory for one piece of this size", "use a smaller batch", memory=True
    ),
    _Status.MAP_FAILURE: _Cause(OutOfMemoryError, "the device's memory cannot be mapped to the host", _SMALLER),
    _Status.INVALID_WORK_GROUP_SIZE: _Cause(
        BackendError, "the work-group is too large for this kernel on this device", RETUNE, groups=True
    ),
    _Status.INVALID_WORK_ITEM_SIZE: _Cause(BackendError, "the work-group is too long on one axis", RETUNE, groups=True),
    _Status.INVALID_GLOBAL_WORK_SIZE: _Cause(
        BackendError, "the tensor needs more work-items than the driver counts", "split the tensor"
    ),
    _Status.BUILD_PROGRAM_FAILURE: _Cause(
        KernelBuildError, "the driver's compiler refused the kernel", f"update the driver, or {_REPORT}"
    ),
    _Status.COMPILER_NOT_AVAILABLE: _Cause(
        KernelBuildError, "this driver has no compiler", "install the full driver, which `polyhal doctor` names"
    ),
    _Status.INVALID_BINARY: _Cause(
        KernelBuildError,
        "the cached program was built by another driver",
        f"set POLYHAL_NO_PROGRAM_CACHE=1, or {_REPORT}",
    ),
    _Status.DEVICE_NOT_FOUND: _Cause(
        BackendError, "the platform has no device", "`polyhal doctor` lists the requirements of drivers on this system"
    ),
    _Status.PLATFORM_NOT_FOUND_KHR: _Cause(
        BackendError, "no OpenCL driver is installed", "run `polyhal doctor` for install instructions"
    ),
    _Status.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: _Cause(
        BackendError, "an earlier command has failed", "look for the first error; POLYHAL_CHECK=reference finds its op"
    ),
}
_OTHER = _Cause(BackendError, "the driver refuses the call", f"update the driver, or {_REPORT}")


class DriverErrors:
    """Creates the errors of one device, and remembers whether the device was lost."""

    def __init__(self, device: str, limits: DeviceLimits | None = None) -> None:
        """`device` is its name."""
        self.device = device
        self.lost = ""
        """First failure that showed the loss of the device; empty while it works."""
        self._limits = limits or DeviceLimits()

    def translate(self, error: cl.Error, action: str) -> PolyhalError:
        """Return the typed error for a failed call. `action` describes the attempted operation, with sizes."""
        return self.from_status(error.code, action)

    def from_status(self, code: int, action: str) -> PolyhalError:
        """Return the typed error for the status code of a failed call or command."""
        name = str(_Status.to_string(code, "status %d"))
        problem = f"{action} failed with {name}"
        if not self.lost and code in _LOST:
            self.lost = f"{problem}: {_LOST[code]}"
        if self.lost:
            return DeviceLostError(
                message(None, f"the device was lost when {self.lost}", fix=REOPEN, device=self.device)
            )
        cause = _CAUSES.get(code, _OTHER)
        limits = [
            self._limits.for_memory() if cause.memory else "",
            f"it allows {allowed}" if cause.groups and (allowed := self._limits.for_groups()) else "",
        ]
        fix = "; ".join([*filter(None, limits), cause.fix])
        return cause.error(message(None, f"{problem}: {cause.problem}", fix=fix, device=self.device))
