"""Emulated devices with matrix units: Intel's CPU runtime with emulations of vendors' built-in functions.

A plug-in, `emulated:UNIT` or `emulated:UNIT,WRONG` (see unit_emulation.h), so that other processes can open them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from polyhal.backends.opencl import capabilities as probed
from polyhal.backends.opencl import discovery, present_units
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl_c import matrix_units
from polyhal.backends.opencl_c.profiles import vendor_profile
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.hookspecs import BackendSpec, hookimpl
from polyhal.hal.protocol import API_VERSION

NAME = "emulated"
_PROLOGUE = Path(__file__).with_name("unit_emulation.h")
_SHIPPED = [u for profile in vendor_profile.shipped() for u in profile.matrix_units]
UNITS = {f"{u.name}{u.lanes}": u for u in _SHIPPED if u.name != "mfma" or len(u.dtypes) == 2}
"""Units by name and width of waves."""


def host() -> discovery.OpenCLDevice | None:
    """Return the emulating device, which must support sub-groups of any size; None if it is not installed."""
    try:
        found = discovery.devices()
    except (ImportError, RuntimeError):
        return None
    return next((d for d in found if "cl_intel_required_subgroup_size" in d.cl.extensions), None)


class EmulatedBackend(OpenCLBackend):
    """The CPU device, treated as a GPU with one matrix unit."""

    def __init__(self, unit: str, wrong: int = 0, compute_units: int = 2) -> None:
        found = host()
        assert found is not None
        info = replace(_info(f"{unit},{wrong}"), memory=found.info.memory)
        features = probed.features

        def as_gpu(*args: Any) -> Any:
            return replace(features(*args), cpu=False, local_memory_is_real=True, compute_units=compute_units)

        with (
            mock.patch.object(probed, "features", as_gpu),
            mock.patch.object(present_units, "present", return_value=(UNITS[unit],)),
        ):
            super().__init__(replace(found, info=info))
        programs = self.runtime.programs
        text = programs.text
        prologue = f"#define EMULATE_{unit.upper()} 1\n#define WRONG {wrong}\n{_PROLOGUE.read_text()}"

        def emulated(source: str, definitions: Mapping[str, Any], kernel: str = "") -> str:
            assembled = text(source, definitions, kernel)
            return prologue + assembled if source in matrix_units.KERNELS else assembled

        programs.text = emulated  # type: ignore[method-assign]


def _info(selector: str) -> DeviceInfo:
    found = host()
    assert found is not None
    return replace(found.info, backend=NAME, name=f"emulated {selector}", id=f"{NAME}/{selector}", selector=selector)


def probe() -> Sequence[DeviceInfo]:
    return [_info(f"{unit},{wrong}") for unit in UNITS for wrong in range(3)] if host() else []


def create(selector: str) -> EmulatedBackend:
    unit, _, wrong = selector.partition(",")
    return EmulatedBackend(unit, int(wrong or 0))


@hookimpl
def polyhal_backends() -> list[BackendSpec]:
    return [BackendSpec(name=NAME, probe=probe, create=create, api_version=API_VERSION, hidden=True)]


def install(folder: Path) -> str:
    """Install the plug-in in a folder, in pip's layout. Returns the value of PYTHONPATH that registers it."""
    meta = folder / f"{NAME}-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[polyhal.backends]\n{NAME} = {Path(__file__).stem}\n")
    return f"{folder}:{Path(__file__).parent}"
