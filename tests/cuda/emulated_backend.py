"""CUDA backends on emulated devices, with the kernels of a GPU that a processor can run too."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emulated_driver import EmulatedLibrary
from emulated_processor import Processor
from emulated_programs import EmulatedCompiler
from native_harness import Harness

from polyhal.backends.common.cuda_driver import CudaDriver
from polyhal.backends.cuda import capabilities as probed
from polyhal.backends.cuda import discovery
from polyhal.backends.cuda.backend import CudaBackend
from polyhal.backends.cuda.compiler import KernelCompiler
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.hal.device import Device

_GROUP = 64
"""Work-items per group of streaming kernels: larger groups are slow on processors."""


class Emulation:
    """An emulated driver, its compiler and its opened devices."""

    def __init__(self, cores: Processor, devices: int = 1, **options: Any) -> None:
        """`options` are those of `EmulatedLibrary`."""
        self.library = EmulatedLibrary(cores, devices, **options)
        self.driver = CudaDriver(self.library)
        self.compiler = EmulatedCompiler(cores)
        self.backends = [self.open(i) for i in range(devices)]
        self.expected_violations: list[str] = []
        """Wrong accesses that the test makes on purpose."""

    def open(
        self, ordinal: int = 0, compiler: KernelCompiler | None = None, quirks: Mapping[str, bool | int] | None = None
    ) -> CudaBackend:
        """Return a new backend of a device, by default with the emulated compiler."""
        info = discovery.describe(self.driver, ordinal)
        device = discovery.ListedDevice(self.driver, ordinal, info, compiler or self.compiler)
        return CudaBackend(device, quirks, emulated_features(self.driver, ordinal, quirks or {}))

    @property
    def backend(self) -> CudaBackend:
        """The backend of the first device."""
        return self.backends[0]

    @functools.cached_property
    def harness(self) -> Harness:
        """The first device with helpers to run kernels."""
        return Harness(self.backend)

    @functools.cached_property
    def device(self) -> Device:
        """The first device, for tensors."""
        return Device.opened("cuda", self.backend)


def emulated_features(driver: CudaDriver, ordinal: int, quirks: Mapping[str, bool | int]) -> KernelFeatures:
    """Return the features of an emulated device, without those that need PTX in kernels."""
    info = discovery.describe(driver, ordinal)
    found = probed.features(driver, ordinal, info.name, probed.profile(info.type))
    without = replace(found.quirks, **{"ptx_half_conversion": False, **quirks})
    return replace(found, compute_capability=0, float_atomics="cas", group_size=_GROUP, quirks=without)
