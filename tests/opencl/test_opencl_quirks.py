"""Workarounds for drivers: declared once, matched by driver, defined in kernels, overridden by profiles."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.quirks import DriverId, active, declared, definitions, with_overrides
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.profiles import vendor_profile
from polyhal.backends.opencl_c.quirks import DriverQuirks, match
from polyhal.backends.wgpu.quirks import WGPUQuirks
from polyhal.backends.wgpu.quirks import match as match_wgpu
from polyhal.hal import dtypes

_MACRO = re.compile(r"\bQUIRK_(\w+)")
_PREFETCHING = re.compile(r"#if PREFETCH_DISTANCE && QUIRK_BUILTIN_PREFETCH\n(#define .*\n)+#endif")
_POCL = match("Portable Computing Language", "3.0", "cpu-x86", cpu=True)


@pytest.mark.parametrize("kind", [DriverQuirks, WGPUQuirks])
def test_every_quirk_has_a_reason(kind: type[Any]) -> None:
    for name, info in declared(kind).items():
        assert info.reason, name
        assert info.evidence, name
        assert not info.link or info.link.startswith("https://"), name


def test_an_unknown_driver_has_none() -> None:
    assert match("A vendor's platform", "1.0", "a device", cpu=False) == DriverQuirks()
    assert match_wgpu("Vulkan", "1.0", "a device", cpu=False) == WGPUQuirks()


def test_drivers_are_distinguished() -> None:
    oclgrind = match("Oclgrind", "21.10", "Oclgrind Simulator", cpu=True)
    intel = match("Intel(R) OpenCL", "2026", "Xeon", cpu=True)
    nvidia = match("NVIDIA CUDA", "580", "H100", cpu=False)
    llvmpipe = match("rusticl", "22.3.6", "llvmpipe (LLVM 15.0.6, 256 bits)", cpu=True)
    radeon = match("rusticl", "24.1.0", "AMD Radeon RX 6800 (radeonsi, navi21)", cpu=False)
    assert set(active(_POCL)) == {
        "try_compiler",
        "skip_binary_cache",
        "parses_all_builtins",
        "polynomial_exp",
        "operators_for_builtins",
        "target_clwb",
        "scalar_fmod",
        "pin_workers",
        "builtin_prefetch",
        "aligned_half_conversion",
        "scalar_pow",
    }
    assert set(active(oclgrind)) == {"skip_binary_cache", "assume_unified_memory"}
    assert set(active(intel)) == {"pin_waiting_thread", "split_by_names", "run_loaded_binaries", "builtin_prefetch"}
    assert set(active(llvmpipe)) == {
        "try_compiler",
        "devices_on_request",
        "many_work_items",
        "group_limit_is_advice",
    }
    assert set(active(radeon)) == {"try_compiler", "devices_on_request"}
    assert set(active(match("Clover", "22.3.6", "AMD Radeon RX 480", cpu=False))) == {"replaced"}
    assert set(active(nvidia)) == {"ptx_half_conversion", "group_limit_is_advice"}


def test_numbers_are_shown_with_their_values() -> None:
    quirks = match_wgpu("Vulkan", "Mesa 22.3.6", "llvmpipe (LLVM 15.0.6, 256 bits)", cpu=True)
    assert set(active(quirks)) == {"loop_limit = 65535", "fixed_subgroup_size = 8"}
    assert quirks.fixed_subgroup_size == 8


def test_kernels_test_existing_quirks() -> None:
    shaders = SourceFolder("polyhal.shaders.opencl")
    asked = {name.lower() for file in shaders.names() for name in _MACRO.findall(shaders.shipped(file))}
    assert asked
    assert asked <= set(declared(DriverQuirks))


def test_active_quirks_are_defined_in_kernels(device: Any) -> None:
    for switched in (False, True):
        backend = device.with_quirk(scalar_fmod=switched).backend
        text = backend.runtime.programs.text("pointwise/elementwise.cl", {})
        assert ("#define QUIRK_SCALAR_FMOD 1" in text) == switched
        assert backend.features.quirks.scalar_fmod == switched
        assert ("scalar_fmod" in backend.capabilities.quirks) == switched
    assert definitions(DriverQuirks()) == {}


def test_a_forced_quirk_does_not_change_the_original_device(device: Any) -> None:
    before = device.backend.features
    forced = device.with_quirk(builtin_prefetch=not before.quirks.builtin_prefetch)
    assert forced.backend.features.quirks.builtin_prefetch != before.quirks.builtin_prefetch
    assert device.backend.features is before
    with pytest.raises(TypeError, match="no_such_quirk"):
        device.with_quirk(no_such_quirk=True)


def test_results_are_right_with_and_without_each_quirk(device: Any, rng: Any) -> None:
    x, y = rng.uniform(-9, 9, 1003).astype(np.float32), rng.uniform(1, 9, 1003).astype(np.float32)
    for switched in (False, True):
        forced = device.with_quirk(scalar_fmod=switched, operators_for_builtins=switched, target_clwb=switched)
        result = forced.run("fmod", [forced.upload(x), forced.upload(y)], dtypes.float32, x.shape)
        np.testing.assert_array_equal(result, np.fmod(x, y))


def test_products_are_right_in_many_short_work_items(device: Any, rng: Any) -> None:
    forced = device.with_quirk(many_work_items=True)
    assert not forced.backend.features.cpu
    a, b = rng.uniform(-1, 1, (2, 67, 67)).astype(np.float32)
    result = forced.run("matmul", [forced.upload(a), forced.upload(b)], dtypes.float32, (67, 67))
    np.testing.assert_allclose(result, a @ b, atol=1e-4)


def test_programs_that_run_were_loaded_from_their_binaries(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded program has no source, so the compiler's memory is released. The file on disk stays the same."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    text = "__kernel void f(__global float *x) { x[get_global_id(0)] *= 2.0f; }"
    for cached in ("", "1"):
        monkeypatch.setenv("POLYHAL_NO_PROGRAM_CACHE", cached)
        for switched in (False, True):
            programs = device.with_quirk(run_loaded_binaries=switched).backend.runtime.programs
            program = programs.build(f"f{switched}.cl", f"{text}  // {cached} {switched}")
            assert programs.compilations == 1
            assert (program.get_info(cl.program_info.SOURCE) == "") == switched
            assert program.get_info(cl.program_info.KERNEL_NAMES) == "f"


def test_kernels_are_compiled_for_the_features_of_the_lowering(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They include features that a test replaces after programs were built."""
    runtime = device.backend.runtime
    texts = []
    for switched in (False, True):
        quirks = dataclasses.replace(runtime.features.quirks, builtin_prefetch=switched)
        monkeypatch.setattr(runtime, "features", dataclasses.replace(runtime.features, quirks=quirks))
        texts.append(runtime.programs.text("pointwise/elementwise.cl", {}))
    assert ["QUIRK_BUILTIN_PREFETCH 1" in text for text in texts] == [False, True]


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("22.3", False),
        ("22.2.9", True),
        ("Mesa 22.3.6 (LLVM 15.0.6)", False),
        ("Mesa 21.4", True),
        ("580.95.05", False),
        ("3.0-rc2", True),
        ("22.3-rc1", False),
        ("22", True),
        ("23", False),
    ],
)
def test_versions_are_compared_by_their_first_two_numbers(version: str, older: bool) -> None:
    assert DriverId("FooCL", version, "a device", cpu=False).before(22, 3) is older


@pytest.mark.parametrize("version", ["", "unknown", "None"])
def test_a_version_that_cannot_be_read_counts_as_old(version: str) -> None:
    """An unnecessary workaround costs time; a missing one makes results wrong."""
    assert DriverId("FooCL", version, "a device", cpu=False).before(0)


def test_a_profile_switches_quirks() -> None:
    text = """
        [match]
        kinds = ["cpu"]
        [quirks]
        builtin_prefetch = false
        polynomial_exp = false
    """
    profile = vendor_profile.parse("mine", text)
    quirks = with_overrides(_POCL, profile.quirks)
    assert not quirks.builtin_prefetch
    assert not quirks.polynomial_exp
    assert quirks.pin_workers
    with pytest.raises(ValueError, match=r"profile mine has a fault: \[quirks\] has an unknown polynomial_exponential"):
        vendor_profile.parse("mine", text.replace("polynomial_exp ", "polynomial_exponential "))


def test_shipped_profiles_name_quirks_that_exist() -> None:
    folder = resources.files("polyhal.backends.opencl_c.profiles")
    assert [f for f in folder.iterdir() if f.name.endswith(".toml")]
    for profile in vendor_profile.shipped():
        assert set(profile.quirks) <= set(declared(DriverQuirks))


def test_doctor_lists_quirks_with_their_reasons(device: Any) -> None:
    capabilities, features = device.backend.capabilities, device.backend.features
    assert capabilities.quirks == active(features.quirks)
    assert capabilities.to_json()["quirks"] == dict(capabilities.quirks)


def test_only_drivers_known_to_prefetch_do_so(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some compilers end the process at the built-in function, which no program can catch."""
    runtime = device.backend.runtime
    known = {p: match(p, "1.0", "a processor", cpu=True) for p in ("Portable Computing Language", "Intel(R) OpenCL")}
    for platform, quirks in {**known, "rusticl": match("rusticl", "22.3.6", "llvmpipe", cpu=True)}.items():
        monkeypatch.setattr(runtime, "features", dataclasses.replace(runtime.features, cpu=True, quirks=quirks))
        assert (prefetch_distance(runtime) > 0) == (platform in known)


def test_no_kernel_prefetches_without_the_quirk() -> None:
    """This holds even if a lowering omits the query of the distance."""
    shaders = SourceFolder("polyhal.shaders.opencl")
    texts = [shaders.shipped(file) for file in shaders.names()]
    assert any("__builtin_prefetch" in text for text in texts)
    assert not any("__builtin_prefetch" in _PREFETCHING.sub("", text) for text in texts)
