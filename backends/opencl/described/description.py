"""Descriptions of devices: a driver's answers to clGetDeviceInfo, as tables in the files of a `Catalogue`.

    [platform]                      # CL_PLATFORM_NAME, VENDOR, VERSION
    [device]                        # CL_DEVICE_* in lower case: the fields of `DescribedDevice` and entries of its
    `newer` [compiler]                      # optional: an offline compiler, and its options for the device
    tool = "clang"
    options = ["-mcpu=gfx803"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import pyopencl as cl

from polyhal.backends.common.described.catalogue import Catalogue, DescriptionHead, check_estimated

_NEWER = ("preferred_work_group_size_multiple", "wavefront_width_amd")
_TABLES = ("platform", "device", "compiler")


@dataclass(frozen=True, slots=True)
class DescribedPlatform:
    """The attributes of a pyopencl platform."""

    name: str
    vendor: str
    version: str


class LanguageVersion(NamedTuple):
    """pyopencl's view of a cl_name_version."""

    name: str
    version: int
    """Major, minor and patch number in 10, 10 and 12 bits."""


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """The attributes of a pyopencl device that the backend reads. Sizes are in bytes, `mem_base_addr_align` in bits."""

    platform: DescribedPlatform
    type: int
    name: str
    vendor: str
    version: str
    opencl_c_version: str
    driver_version: str
    max_compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    sub_group_sizes: tuple[int, ...]
    """Supported sub-group sizes, as cl_intel_required_subgroup_size reports them; empty without sub-groups."""
    local_mem_type: int
    local_mem_size: int
    global_mem_size: int
    max_mem_alloc_size: int
    max_parameter_size: int
    mem_base_addr_align: int
    host_unified_memory: bool
    preferred_vector_width_float: int
    native_vector_width_float: int
    single_fp_config: int
    double_fp_config: int
    extensions: str
    opencl_c_all_versions: tuple[LanguageVersion, ...] = ()
    """Empty before OpenCL 3.0, where drivers cannot list them."""
    profile: str = "FULL_PROFILE"
    available: bool = True
    compiler_available: bool = True
    newer: Mapping[str, int] = field(default_factory=dict)
    """Attributes of OpenCL 3.0 and of vendors' extensions; other devices lack them."""
    parent_device: None = None
    partition_properties: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> int:
        try:
            return self.newer[name]
        except KeyError:
            raise AttributeError(f"{self.name} has no {name}") from None


@dataclass(frozen=True, slots=True)
class OfflineCompiler:
    """A compiler that generates code for a device that need not be present."""

    tool: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceDescription(DescriptionHead):
    """A described OpenCL device."""

    device: DescribedDevice
    compiler: OfflineCompiler | None


def _build(head: Mapping[str, Any], data: dict[str, Any]) -> DeviceDescription:
    platform, facts, compiler = (data.pop(name, None) for name in _TABLES)
    check_estimated(head["estimated"], facts)
    return DeviceDescription(
        **head,
        device=_device(DescribedPlatform(**platform), facts),
        compiler=None if compiler is None else OfflineCompiler(compiler["tool"], tuple(compiler["options"])),
        **data,
    )


def _device(platform: DescribedPlatform, facts: Mapping[str, Any]) -> DescribedDevice:
    values = {
        **{name: value for name, value in facts.items() if name not in _NEWER},
        "newer": {name: facts[name] for name in _NEWER if name in facts},
        "type": getattr(cl.device_type, facts["type"].upper()),
        "local_mem_type": getattr(cl.device_local_mem_type, facts["local_mem_type"].upper()),
        "single_fp_config": _bits(facts["single_fp_config"]),
        "double_fp_config": _bits(facts["double_fp_config"]),
        "extensions": " ".join(facts["extensions"].split()),
        "opencl_c_all_versions": tuple(_language(v) for v in facts.get("opencl_c_all_versions", ())),
        **{name: tuple(facts[name]) for name in ("max_work_item_sizes", "sub_group_sizes")},
    }
    device = DescribedDevice(platform, **values)
    numbers = [f.name for f in fields(DescribedDevice) if f.type == "int" and getattr(device, f.name) < 0]
    if numbers:
        raise ValueError(f"negative: {', '.join(numbers)}")
    return device


def _language(version: str) -> LanguageVersion:
    major, minor = map(int, version.split("."))
    return LanguageVersion("OpenCL C", major << 22 | minor << 12)


def _bits(names: list[str]) -> int:
    """Return the flags of CL_DEVICE_*_FP_CONFIG of these names."""
    return sum(getattr(cl.device_fp_config, name.upper()) for name in names)


_CATALOGUE = Catalogue("polyhal.backends.opencl.devices", _build)
known, load, parse = _CATALOGUE.known, _CATALOGUE.load, _CATALOGUE.parse
