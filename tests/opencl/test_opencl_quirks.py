"""Workarounds for drivers: declared once, matched by driver, known to kernels, overridden by profiles."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from typing import Any

import pytest

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.quirks import active, declared, definitions, with_overrides
from polyhal.backends.opencl.profiles import vendor_profile
from polyhal.backends.opencl.program import ProgramCache
from polyhal.backends.opencl.quirks import OpenCLQuirks, match
from polyhal.backends.wgpu.quirks import WGPUQuirks
from polyhal.backends.wgpu.quirks import match as match_wgpu

_MACRO = re.compile(r"\bQUIRK_(\w+)")
_POCL = match("Portable Computing Language", "3.0", "cpu-x86", cpu=True)


@pytest.mark.parametrize("kind", [OpenCLQuirks, WGPUQuirks])
def test_every_quirk_says_why(kind: type[Any]) -> None:
    for name, info in declared(kind).items():
        assert info.reason, name
        assert info.evidence, name
        assert not info.link or info.link.startswith("https://"), name


def test_an_unknown_driver_has_none() -> None:
    assert match("A vendor's platform", "1.0", "a device", cpu=False) == OpenCLQuirks()
    assert match_wgpu("Vulkan", "1.0", "a device", cpu=False) == WGPUQuirks()


def test_drivers_are_told_apart() -> None:
    oclgrind = match("Oclgrind", "21.10", "Oclgrind Simulator", cpu=True)
    intel = match("Intel(R) OpenCL", "2026", "Xeon", cpu=True)
    nvidia = match("NVIDIA CUDA", "580", "H100", cpu=False)
    assert set(active(_POCL)) == {
        "skip_binary_cache", "polynomial_exp", "operators_for_builtins", "target_clwb", "scalar_fmod", "pin_workers",
    }  # fmt: skip
    assert set(active(oclgrind)) == {"skip_binary_cache", "assume_unified_memory", "disable_prefetch"}
    assert set(active(intel)) == {"pin_waiting_thread"}
    assert set(active(nvidia)) == {"ptx_half_conversion"}


def test_numbers_are_shown_with_their_values() -> None:
    quirks = match_wgpu("Vulkan", "Mesa 22.3.6", "llvmpipe (LLVM 15.0.6, 256 bits)", cpu=True)
    assert set(active(quirks)) == {"loop_limit = 65535", "fixed_subgroup_size = 8"}
    assert quirks.fixed_subgroup_size == 8


def test_kernels_ask_for_quirks_that_exist() -> None:
    shaders = SourceFolder("polyhal.shaders.opencl")
    asked = {name.lower() for file in shaders.names() for name in _MACRO.findall(shaders.shipped(file))}
    assert asked
    assert asked <= set(declared(OpenCLQuirks))


def test_kernels_know_the_quirks_in_force(found: Any, device: Any) -> None:
    runtime = device.backend.runtime
    for quirks in (OpenCLQuirks(), dataclasses.replace(OpenCLQuirks(), scalar_fmod=True)):
        features = dataclasses.replace(runtime.features, quirks=quirks)
        store = ProgramCache(runtime.context, found.cl, features, found.info)
        text = store._text("pointwise/elementwise.cl", {})
        assert ("#define QUIRK_SCALAR_FMOD 1" in text) == quirks.scalar_fmod
    assert definitions(OpenCLQuirks()) == {}


def test_a_profile_switches_quirks() -> None:
    text = """
        [match]
        kinds = ["cpu"]
        [quirks]
        disable_prefetch = true
        polynomial_exp = false
    """
    profile = vendor_profile.parse("mine", text)
    quirks = with_overrides(_POCL, profile.quirks)
    assert quirks.disable_prefetch
    assert not quirks.polynomial_exp
    assert quirks.pin_workers
    with pytest.raises(ValueError, match="profile mine: polynomial_exponential cannot be used"):
        vendor_profile.parse("mine", text.replace("polynomial_exp ", "polynomial_exponential "))


def test_shipped_profiles_name_quirks_that_exist() -> None:
    folder = resources.files("polyhal.backends.opencl.profiles")
    assert [f for f in folder.iterdir() if f.name.endswith(".toml")]
    for profile in vendor_profile.shipped():
        assert set(profile.quirks) <= set(declared(OpenCLQuirks))


def test_doctor_lists_them_with_their_reasons(device: Any) -> None:
    capabilities, features = device.backend.capabilities, device.backend.features
    assert capabilities.quirks == active(features.quirks)
    assert capabilities.to_json()["quirks"] == dict(capabilities.quirks)
