"""Described devices: their features and limits, and lowering of all ops and training steps for each."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.backends.common.codegen.preprocessor import ActiveText, Macro
from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.opencl import unusable
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl.described.description import DescribedDevice
from polyhal.cli.workers.build_workloads import all_workloads
from polyhal.hal.device import Device
from polyhal.hal.errors import (
    BackendError,
    DeviceUnavailableError,
    KernelBuildError,
    OutOfMemoryError,
    UnsupportedDTypeError,
)
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.system.diagnostics.explain_op import explain
from polyhal.hal.system.discovery.registry import Registry, registry
from polyhal.hal.testing.tuning.kernel_check import lower_samples, ops_by_kernel

pytestmark = pytest.mark.slow

KEYS = description.known()

EXPECTED = {
    # support of float64 and half, as documented for these products
    "rx480": (True, True),
    "vega20": (True, True),
    "rx6800": (True, True),
    "rx7900": (True, True),
    "rx9070": (True, True),
    "strix": (True, True),
    "mi250": (True, True),
    "uhd630": (True, True),
    "irisxe": (False, True),
    "a770": (False, True),
    "lunarlake": (True, True),
    "m1": (False, False),
    "malig78": (False, True),
    "adreno730": (False, True),
    "bare12": (False, False),
}
ACTIVE = ActiveText(SourceFolder("polyhal.shaders.opencl").read)
WAVES = {
    "rx480": 64,
    "vega20": 64,
    "mi250": 64,
    "rx6800": 32,
    "rx7900": 32,
    "rx9070": 32,
    "malig78": 16,
    "m1": 1,
    "bare12": 1,
}
"""Wave sizes of hardware with a single width; drivers of OpenCL 1.2 do not report it."""
TRAINING = tuple(name for name in all_workloads() if name != "used")


def opened(key: str) -> tuple[Device, OpenCLDescribedBackend]:
    """Open a new described device."""
    backend = OpenCLDescribedBackend(description.load(key))
    return Device.opened(f"described:{key}", backend), backend


def limited(device: DescribedDevice, **limits: Any) -> DescribedDevice:
    """Return the device with other limits."""
    return DescribedDevice(**{**vars(device), **limits})


class OnceDefined(dict[str, Macro]):
    """The macros of a program; a redefinition is an error: compilers warn of it, but builds hide warnings."""

    def __setitem__(self, name: str, macro: Macro) -> None:
        assert self.get(name, macro) == macro
        super().__setitem__(name, macro)


@functools.cache
def check_macros(file: str, definitions: tuple[tuple[str, Any], ...]) -> None:
    """Check that no macro is redefined with another value."""
    bodies = {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in definitions}
    assert list(ACTIVE._walk(file, OnceDefined({name: Macro(name, None, body) for name, body in bodies.items()})))


def check_launches(backend: OpenCLDescribedBackend) -> None:
    """Check that launches have no NVIDIA-only features and respect the device's limits.

    The limits are checked a second time, because lowering must not swallow an error.
    """
    device = backend.description.device
    for launch in backend.kernels.launches:
        assert not list(launch.violations(device)), launch.kernel
        check_macros(launch.file, launch.definitions)
        assert "#define HAVE_PTX 0" in launch.text
        assert f"#define HAVE_FP64 {int(bool(device.double_fp_config))}" in launch.text
        assert dict(launch.definitions).get("EXCHANGE", 0) != 2, "shuffles of warps are NVIDIA's"


@pytest.mark.parametrize("key", KEYS)
def test_descriptions_are_consistent(key: str) -> None:
    described = description.load(key)
    device, (_, backend) = described.device, opened(key)
    fp64, fp16 = EXPECTED[key]
    card = described.card
    assert (backend.features.profile, backend.info.type) == (card.family, card.type)
    assert (backend.features.fp64, backend.features.fp16) == (fp64, fp16)
    assert backend.features.compute_capability == 0
    assert backend.features.wave == WAVES.get(key, backend.features.wave)
    extensions = device.extensions.split()
    assert len(set(extensions)) == len(extensions)
    assert fp64 == ("cl_khr_fp64" in extensions)
    assert bool(device.sub_group_sizes) == bool({"cl_khr_subgroups", "cl_intel_subgroups"} & set(extensions))
    assert unusable.examine(device.platform, device) is None
    # Minima of the full profile: OpenCL 1.2, table 4.3.
    assert device.max_parameter_size >= 1024
    assert device.local_mem_size >= 32 << 10
    assert device.global_mem_size >= device.max_mem_alloc_size >= 128 << 20
    assert all(n <= device.max_work_group_size or card.family == "amd" for n in device.max_work_item_sizes)
    assert min(device.max_work_item_sizes) >= 1


@pytest.mark.parametrize("key", KEYS)
def test_training_steps_lower_within_the_limits(key: str) -> None:
    device, backend = opened(key)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*only described")
        for name in TRAINING:
            all_workloads()[name](device)
    assert {launch.file.partition("/")[0] for launch in backend.kernels.launches} >= {
        "gemm",
        "conv",
        "attention",
        "reduction",
        "rowwise",
        "pointwise",
        "gather",
        "optim",
    }
    check_launches(backend)


@pytest.mark.parametrize("key", KEYS)
def test_all_ops_lower_within_the_limits(key: str) -> None:
    device, backend = opened(key)
    for op in OPS:
        lower_samples(device, op)
    assert len({launch.file for launch in backend.kernels.launches}) > 40
    check_launches(backend)


def test_a_launch_beyond_the_limits_is_refused() -> None:
    small = description.load("rx480")
    limits: dict[str, Any] = {"max_work_group_size": 128, "local_mem_size": 1024, "max_parameter_size": 64}
    launches = opened("rx480")[1]
    for op in ("matmul", "softmax", "sum"):
        lower_samples(Device.opened("described:rx480", launches), OPS[op])
    found = [v for launch in launches.kernels.launches for v in launch.violations(limited(small.device, **limits))]
    for expected in (
        "a group of 256 work-items, where the device takes 128",
        "local memory, where",
        "arguments, where",
    ):
        assert any(expected in v for v in found), expected
    axes = limited(small.device, max_work_item_sizes=(64, 1, 1))
    assert any("per axis" in v for launch in launches.kernels.launches for v in launch.violations(axes))
    # A device with contradictory answers: lowering uses the maximum group size, the launch the maximum size of
    # arguments.
    backend = OpenCLDescribedBackend(replace(small, device=limited(small.device, max_parameter_size=16)))
    with pytest.raises(KernelBuildError, match="bytes of arguments, where the device takes 16"):
        polyhal.zeros((4,), device=Device.opened("described:rx480", backend))
    # A fallback kernel may replace it, but tests of limits must see it nevertheless.
    assert any(
        "arguments, where" in v for noted in backend.kernels.launches for v in noted.violations(backend.runtime.device)
    )


def test_values_are_zeros_with_one_warning() -> None:
    device, backend = opened("a770")
    x = polyhal.tensor(np.ones(3, np.float32), device=device)
    with pytest.warns(UserWarning, match="only described and computes nothing.*Arc A770"):
        assert not (x + 1).numpy().any()
    assert not x.numpy().any()
    assert backend.memory_available() < backend.info.memory


def test_memory_is_limited_as_on_the_device() -> None:
    _, backend = opened("bare12")
    largest = 128 << 20
    with pytest.raises(OutOfMemoryError, match=f"at most {largest} in one piece"):
        backend.allocate(largest + 1)
    blocks = [backend.allocate(largest) for _ in range(4)]
    assert backend.memory_available() == 0
    with pytest.raises(OutOfMemoryError, match="536870912 in use"):
        backend.allocate(1)
    backend.deallocate(blocks[0])
    assert backend.memory_available() == largest
    with pytest.raises(BackendError, match="released before"):
        backend.deallocate(blocks[0])


def test_described_devices_are_hidden_and_opened_by_name() -> None:
    assert not any(c.backend.name == "described" for c in registry().candidates())
    listed = [c.name for c in registry().candidates(hidden=True) if c.backend.name == "described"]
    assert {f"described:{key}" for key in KEYS} <= set(listed)
    assert Device("described:rx6800").info.name == "Radeon RX 6800 (described)"
    with pytest.raises(DeviceUnavailableError, match="unknown card 'rx9'; expected one of a770, adreno730"):
        Device("described:rx9")


def test_a_users_card_is_opened_by_its_path(tmp_path: Path) -> None:
    text = resources.files("polyhal.hal.core.hardware.cards").joinpath("uhd630.toml").read_text(encoding="utf-8")
    path = tmp_path / "my card.toml"
    path.write_text(text.replace("UHD Graphics 630", "My card"), encoding="utf-8")
    assert Device(f"described:{path}").info.name == "My card (described)"
    assert Device(f"described:{path}-vulkan").info.name == "My card, Vulkan (described)"
    with pytest.raises(DeviceUnavailableError, match=r"no section \[driver.metal\]; expected a card with it: m1"):
        Device(f"described:{path}-metal")
    bare = tmp_path / "bare.toml"
    bare.write_text('title = ""\nvendor = ""\ntype = "gpu"\n[driver]\n', encoding="utf-8")
    with pytest.raises(DeviceUnavailableError, match=r"no section \[driver.opencl\]; expected a card with it: a770"):
        Device(f"described:{bare}")
    with pytest.raises(DeviceUnavailableError, match="unknown option 'unit' of a described device; expected units"):
        Device(f"described:{path},unit")
    with pytest.raises(
        DeviceUnavailableError, match=r"the card h200 has no section \[driver\]; expected a card with it: a770"
    ):
        Device("described:h200")


def test_described_devices_are_never_measured() -> None:
    def run(names: Any, *args: Any) -> Any:
        raise AssertionError(f"measured {names}")

    assert Registry(run_benchmark=run).open("described").info.backend == "described"


def test_explain_shows_the_kernels_of_the_device() -> None:
    text = str(explain("softmax", "described:rx6800"))
    assert "rowwise_softmax" in text
    assert "rowwise_softmax" in str(explain("softmax", "described:malig78"))
    with pytest.raises(UnsupportedDTypeError, match="no float64 on this device"):
        explain("softmax", "described:m1", dtype=polyhal.float64)


def test_kernel_files_are_listed_with_their_ops() -> None:
    assert "softmax" in ops_by_kernel(Device("described:adreno730"))["rowwise/softmax.cl"]
