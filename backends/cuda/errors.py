"""Error mapping: statuses of the CUDA driver as Polyhal's typed errors, each with its likely cause and a remedy."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.backends.common.cuda_driver import OUT_OF_MEMORY, CudaError
from polyhal.backends.common.lost_devices import REOPEN
from polyhal.hal.errors import BackendError, DeviceLostError, KernelBuildError, OutOfMemoryError, PolyhalError, message

_REPORT = "report this with the output of `polyhal doctor`"
RETUNE = (
    "in a kernel of your own use a smaller `group`; else `polyhal tune --reset` forgets tuned sizes, "
    "or report this with the output of `polyhal doctor`"
)
"""Remedy for a block that is too large."""
_LOST = {
    4: "the driver is shutting down",
    46: "the device was given to another process, or was reset",
    214: "the device's memory has an uncorrectable error",
    700: "a kernel has accessed memory out of bounds",
    702: "a kernel ran for longer than the system allows",
    709: "the context was destroyed",
    710: "a kernel has run into an assertion",
    714: "the device has a hardware error",
    715: "a kernel has executed an illegal instruction",
    716: "a kernel has accessed a misaligned address",
    717: "a kernel has accessed an address of the wrong memory",
    718: "a kernel has jumped out of its program",
    719: "a kernel has crashed",
    999: "the driver reports an unknown error",
}
"""Statuses after which a context is unusable."""


class _Cause(NamedTuple):
    error: type[PolyhalError]
    problem: str
    fix: str


_SMALLER = "drop tensors that are no longer needed, or use a smaller batch"
_UPDATE = f"update NVIDIA's driver, or {_REPORT}"
_CAUSES = {
    OUT_OF_MEMORY: _Cause(OutOfMemoryError, "the device has no memory for it", _SMALLER),
    200: _Cause(KernelBuildError, "the driver cannot load the program", _UPDATE),
    209: _Cause(KernelBuildError, "the program was compiled for another device", _UPDATE),
    218: _Cause(KernelBuildError, "the driver's assembler refuses the program", _UPDATE),
    222: _Cause(KernelBuildError, "the program is newer than the driver", _UPDATE),
    701: _Cause(BackendError, "the block is too large for this kernel on this device", RETUNE),
}
_OTHER = _Cause(BackendError, "the driver refuses the call", _UPDATE)


class CudaErrors:
    """Creates the errors of one device, and remembers whether the device was lost."""

    def __init__(self, device: str) -> None:
        """`device` is its name."""
        self._device = device
        self.lost = ""
        """First failure that showed the loss of the device; empty while it works."""

    def translate(self, error: CudaError, action: str) -> PolyhalError:
        """Return the typed error for a failed call. `action` describes the attempted operation, with sizes."""
        problem = f"{action} failed with {error.name} ({error.function})"
        if not self.lost and error.status in _LOST:
            self.lost = f"{problem}: {_LOST[error.status]}"
        if self.lost:
            return DeviceLostError(
                message(None, f"the device was lost when {self.lost}", fix=REOPEN, device=self._device)
            )
        cause = _CAUSES.get(error.status, _OTHER)
        return cause.error(message(None, f"{problem}: {cause.problem}", fix=cause.fix, device=self._device))

    def local_memory(self, kernel: str, declared: int, limit: int) -> BackendError:
        """Return the error about a kernel that declares more bytes of local memory than the device has."""
        problem, fix = f"the kernel declares {declared} bytes of local memory", "make its `__local` arrays smaller"
        return BackendError(message(kernel, problem, expected=f"at most {limit}", fix=fix, device=self._device))
