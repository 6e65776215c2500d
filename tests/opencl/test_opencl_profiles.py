"""Vendor profiles match their vendor's devices, have values limited by the device, and every op lowers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from polyhal.backends.opencl import capabilities
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl.capabilities import features
from polyhal.backends.opencl_c.profiles import vendor_profile as profiles
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.settings.toml_schema import FaultyFileError
from polyhal.hal.device import Device
from polyhal.hal.testing.tuning.kernel_check import ops_by_kernel

pytestmark = pytest.mark.slow

GPU, INTEGRATED, CPU = DeviceType.GPU, DeviceType.INTEGRATED_GPU, DeviceType.CPU

DEVICES = {
    # vendor, platform, kind, largest group, local memory in KiB, whether it is on the chip, native width
    "nvidia": ("NVIDIA Corporation", "NVIDIA CUDA", GPU, 1024, 48, True, 1),
    "amd": ("Advanced Micro Devices, Inc.", "AMD Accelerated Parallel Processing", GPU, 256, 64, True, 1),
    "amd (Mesa)": ("AMD", "rusticl", INTEGRATED, 1024, 32, True, 4),
    "intel_gpu": ("Intel(R) Corporation", "Intel(R) OpenCL Graphics", INTEGRATED, 512, 64, True, 1),
    "mali": ("ARM", "ARM Platform", INTEGRATED, 384, 32, False, 4),
    "adreno": ("QUALCOMM", "QUALCOMM Snapdragon(TM)", INTEGRATED, 1024, 32, True, 1),
    "gpu": ("Imagination Technologies", "PowerVR", INTEGRATED, 96, 4, True, 1),
    "gpu (tiny)": ("VeriSilicon", "Vivante OpenCL Platform", INTEGRATED, 64, 1, False, 4),
    "cpu": ("GenuineIntel", "Portable Computing Language", CPU, 4096, 512, False, 16),
    "cpu (Intel's runtime)": ("Intel(R) Corporation", "Intel(R) OpenCL", CPU, 8192, 256, False, 16),
    "cpu (ARM)": ("ARM", "Portable Computing Language", CPU, 4096, 512, False, 4),
    "cpu (AMD)": ("AuthenticAMD", "Portable Computing Language", CPU, 4096, 512, False, 8),
}


def record(name: str) -> tuple[Any, DeviceType]:
    """Return such a device in pyopencl's form."""
    vendor, platform, kind, group, local, on_chip, width = DEVICES[name]
    types = cl.device_local_mem_type
    device = SimpleNamespace(
        vendor=vendor,
        name=name,
        platform=SimpleNamespace(name=platform),
        version="OpenCL 1.2 made up",
        extensions="",
        driver_version="1.0",
        opencl_c_version="OpenCL C 1.2 made up",
        parent_device=None,
        double_fp_config=0,
        single_fp_config=0,
        host_unified_memory=kind is not GPU,
        max_work_group_size=group,
        max_parameter_size=1024,
        local_mem_size=local * 1024,
        local_mem_type=types.LOCAL if on_chip else types.GLOBAL,
        max_compute_units=4,
        native_vector_width_float=width,
        preferred_vector_width_float=width,
    )
    return device, kind


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_has_its_profile_within_its_limits(name: str) -> None:
    device, kind = record(name)
    found = features(device, kind)
    assert found.profile == name.partition(" (")[0]
    assert found.cpu == (kind is CPU)
    assert 1 <= found.group_size <= device.max_work_group_size
    assert found.group_size.bit_count() == 1
    assert found.vector_width in (4, 8, 16)
    if found.local_memory_is_real:
        assert device.local_mem_type == cl.device_local_mem_type.LOCAL
    assert found.local_memory == device.local_mem_size


@pytest.mark.parametrize("name", [n for n in DEVICES if n != "cpu (Intel's runtime)"])
def test_every_op_lowers_within_the_limits_of_a_vendor(found: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built, because the device is simulated. Launches must not exceed its maximum group size."""
    device, kind = record(name)
    backend = OpenCLBackend(found)
    runtime = backend.runtime
    runtime.features = features(device, kind)
    launch = runtime.launch
    groups: list[tuple[str, tuple[int, ...]]] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        groups.append((args[0], args[4]))
        return launch(*args, **kwargs)

    monkeypatch.setattr(runtime, "launch", watched)
    served = ops_by_kernel(Device.opened("made up", backend))
    assert served["rowwise/softmax.cl"]
    assert backend.kernels.program_builds == []
    assert len(groups) > 100
    assert {(s, g) for s, g in groups if math.prod(g) > device.max_work_group_size} == set()


@pytest.mark.parametrize(
    ("profile", "reported", "slices", "processors"),
    [
        ("nvidia", 132, None, 132),
        ("amd", 36, None, 36),
        ("mali", 24, None, 24),
        ("intel_gpu", 512, (8, 4), 32),  # Arc A770: 32 Xe cores of 16 vector engines
        ("intel_gpu", 24, (1, 3), 3),  # UHD 630: three sub-slices of 8
        ("intel_gpu", 512, None, 32),  # a driver that does not report slices
        ("intel_gpu", 24, (0, 0), 2),
        ("cpu (Intel's runtime)", 2, None, 2),
        ("cpu (Intel's runtime)", 2, (1, 1), 2),  # it reports a single sub-slice
    ],
)
def test_work_is_divided_among_processors_that_run_whole_groups(
    profile: str, reported: int, slices: tuple[int, int] | None, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some drivers count vector engines as compute units, and a group runs on many of them."""
    device, kind = record(profile)
    device.max_compute_units = reported
    answers = dict(zip((0x4252, 0x4253), slices or (), strict=False))
    device.extensions = "cl_intel_device_attribute_query" if slices else ""
    monkeypatch.setattr(capabilities, "raw_info", lambda _, name, size: answers[name].to_bytes(size, "little"))
    assert features(device, kind).compute_units == processors


def test_shipped_profiles_only_set_permitted_fields() -> None:
    shipped = profiles.shipped()
    assert {p.name for p in shipped} == {"nvidia", "amd", "intel_gpu", "mali", "adreno", "gpu", "cpu"}
    for profile in shipped:
        assert profile.kinds
        assert profile.group_size is not None
        assert profile.group_size.bit_count() == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[match]\nkinds = ['toaster']",
        "[match]\nkinds = ['gpu']\n[features]\ngroups = 3",
        "[match]\nkinds = ['gpu']\n[features]\ngroup_size = '64'",
        "[match]\nkinds = ['gpu']\nvendors = ['ARM']",
        "[match]\nkinds = ['gpu']\n[choices.matmul]\ndepth = 1.5",
        "[match",
    ],
)
def test_an_invalid_profile_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="profile mine"):
        profiles.parse("mine", text)


def test_all_faults_of_a_profile_are_reported_at_once() -> None:
    text = """
        [match]
        kinds = ["gpu", "toaster"]
        [features]
        group_size = "64"
        [choices.matmul]
        depth = 1.5
        [[matrix_units]]
        name = "mine"
        description = ""
        source = ""
        devices = ["x"]
        dtypes = ["float16"]
        large = [128, 100, 64, 32]
        small = [64, 64, 32, 32]
    """
    with pytest.raises(FaultyFileError) as error:
        profiles.parse("mine", text)
    assert [(fault.section, fault.key) for fault in error.value.faults] == [
        ("match", "kinds"),
        ("features", "group_size"),
        ("choices.matmul", "depth"),
        ("matrix_units.1", "lanes"),
        ("matrix_units.1", "large"),
    ]


def test_an_unknown_vendor_has_the_general_profile() -> None:
    shipped = profiles.shipped()
    assert profiles.choose(shipped, "Charm Industries", "Charm", GPU).name == "gpu"
    assert profiles.choose([], "ARM", "ARM", GPU).name == "none"
