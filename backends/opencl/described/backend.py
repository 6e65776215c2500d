"""The backend of described OpenCL devices."""

from __future__ import annotations

from polyhal.backends.common.described.backend import NAME, DescribedBackend
from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, lowering, matrix_units
from polyhal.backends.opencl.described.description import DeviceDescription
from polyhal.backends.opencl.described.runtime import DescribedRuntime
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.kernels import tuning


def device_info(described: DeviceDescription) -> DeviceInfo:
    """Return the identity of a described device."""
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


class OpenCLDescribedBackend(DescribedBackend):
    """One described OpenCL device."""

    def __init__(self, described: DeviceDescription, *, units: bool = False) -> None:
        """With `units`, products use the device's matrix units as if they were certified."""
        device, info = described.device, device_info(described)
        profile = probed.profile(device, info.type)
        features = probed.features(device, info.type, profile)
        features, self.units = matrix_units.certified(profile.matrix_units, device, info, features, forced=units)
        choices = tuning.Tuning(features, profile.choices, {})
        self.description = described
        self.runtime = DescribedRuntime(described, info, features, probed.capabilities(device, features), choices)
        self.kernels = self.runtime.programs
        super().__init__(self.runtime, lowering.BUILDERS, lowering.table())

    @property
    def features(self) -> probed.OpenCLFeatures:
        """The device facts by which kernels and launches are chosen."""
        return self.runtime.features
