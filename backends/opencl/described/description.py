"""Descriptions of devices: a driver's answers to clGetDeviceInfo, from the section `driver.opencl` of a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyopencl as cl

from polyhal.backends.common.described import description
from polyhal.backends.common.described.backend import NAME
from polyhal.backends.common.described.description import CardDescription
from polyhal.backends.opencl import discovery
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.hardware.catalogue import Card

_TYPES = {DeviceType.CPU: cl.device_type.CPU, DeviceType.ACCELERATOR: cl.device_type.ACCELERATOR}
"""Types of devices that are not GPUs."""


class LanguageVersion(NamedTuple):
    """pyopencl's view of a cl_name_version."""

    name: str
    version: int
    """Major, minor and patch number in 10, 10 and 12 bits."""


class DescribedDevice(SimpleNamespace):
    """The attributes of a pyopencl device that the backend reads, with a `platform`.

    `sub_group_sizes` are the sizes that cl_intel_required_subgroup_size reports; empty without sub-groups.
    """

    opencl_c_all_versions: tuple[LanguageVersion, ...] = ()
    profile = "FULL_PROFILE"
    available = True
    compiler_available = True
    parent_device = None
    partition_properties: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OfflineCompiler:
    """A compiler that generates code for a device that need not be present."""

    tool: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceDescription(CardDescription):
    """A described OpenCL device."""

    device: DescribedDevice
    compiler: OfflineCompiler | None

    @property
    def info(self) -> DeviceInfo:
        """Identity of the device."""
        return DeviceInfo(
            backend=NAME,
            name=f"{self.card.title} (described)",
            type=discovery.kind(self.device, self.device.name),
            memory=self.device.global_mem_size,
            driver=f"{self.device.platform.name} {self.device.driver_version}",
            id=f"{NAME}/{self.key}",
            selector=self.key,
            vendor=self.device.vendor,
        )


def known() -> list[str]:
    """Return the selectors of all described OpenCL devices."""
    return description.known("opencl")


def load(key: str) -> DeviceDescription:
    """Return the description of a device. Raises ValueError that lists the cards if there is none."""
    found = description.find(key)
    driver = found.driver
    compiler = driver.get("compiler")
    return DeviceDescription(
        found.card,
        found.api,
        device=_device(found.card, driver),
        compiler=None if compiler is None else OfflineCompiler(compiler["tool"], tuple(compiler["options"])),
    )


def _device(card: Card, driver: Mapping[str, Any]) -> DescribedDevice:
    answers = driver["device"]
    values = {
        **answers,
        "platform": SimpleNamespace(**driver["platform"]),
        "type": _TYPES.get(card.type, cl.device_type.GPU),
        "local_mem_type": getattr(cl.device_local_mem_type, answers["local_mem_type"].upper()),
        "extensions": " ".join(f"{answers['extensions']} {answers.get('more_extensions', '')}".split()),
        "opencl_c_all_versions": tuple(map(_language, answers.get("opencl_c_all_versions", ()))),
        **{name: _bits(answers[name]) for name in ("single_fp_config", "double_fp_config")},
        **{name: tuple(answers[name]) for name in ("max_work_item_sizes", "sub_group_sizes")},
    }
    return DescribedDevice(**values)


def _language(version: str) -> LanguageVersion:
    major, minor = map(int, version.split("."))
    return LanguageVersion("OpenCL C", major << 22 | minor << 12)


def _bits(names: list[str]) -> int:
    """Return the flags of CL_DEVICE_*_FP_CONFIG of these names."""
    return sum(getattr(cl.device_fp_config, name.upper()) for name in names)
