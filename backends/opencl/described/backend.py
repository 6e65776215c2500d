"""The backend of described OpenCL devices."""

from __future__ import annotations

from polyhal.backends.common.described.backend import DescribedBackend
from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import present_units
from polyhal.backends.opencl.described.description import DeviceDescription
from polyhal.backends.opencl.described.runtime import DescribedRuntime
from polyhal.backends.opencl_c import lowering
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.hal.core.kernels import tuning
from polyhal.hal.errors import message

_UNITS = "units"


class OpenCLDescribedBackend(DescribedBackend):
    """One described OpenCL device."""

    def __init__(self, described: DeviceDescription, *, units: bool = False) -> None:
        """With `units`, products use the device's matrix units as if they were certified."""
        device, info = described.device, described.info
        profile = probed.profile(device, info.type)
        features = probed.features(device, info.type, profile)
        features, self.units = present_units.certified(profile.matrix_units, device, info, features, forced=units)
        choices = tuning.Tuning(features, profile.choices, {})
        self.description = described
        self.runtime = DescribedRuntime(described, info, features, probed.capabilities(device, features), choices)
        self.kernels = self.runtime.programs
        super().__init__(self.runtime, lowering.BUILDERS, lowering.table())

    @property
    def features(self) -> KernelFeatures:
        """The device facts by which kernels and launches are chosen."""
        return self.runtime.features


def create(described: DeviceDescription, option: str) -> OpenCLDescribedBackend:
    """Open a described device; the option `units` puts its matrix units into use. Raises ValueError for another option."""
    if option not in ("", _UNITS):
        raise ValueError(message(None, f"unknown option {option!r} of a described device", expected=_UNITS))
    return OpenCLDescribedBackend(described, units=option == _UNITS)
