"""Mesa's drivers: errors explain their configuration, and kernels are right on the CPU driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.opencl import discovery, icd, mesa_hints, unusable
from polyhal.backends.opencl_c.build_errors import build_error
from polyhal.hal.capabilities import UnusableDevice
from polyhal.hal.errors import DeviceUnavailableError

_NO_HEADERS = "<built-in>:1:10: fatal error: 'opencl-c-base.h' file not found"


class _Platform(SimpleNamespace):
    """A platform in pyopencl's form; `devices` are its listed devices."""

    devices: tuple[Any, ...] = ()

    def get_devices(self) -> list[Any]:
        return list(self.devices)


def rusticl(*devices: Any) -> _Platform:
    return _Platform(name="rusticl", vendor="Mesa/X.org", version="OpenCL 3.0 ", devices=devices)


def clover(*devices: Any) -> _Platform:
    return _Platform(name="Clover", vendor="Mesa", version="OpenCL 1.1 Mesa 22.3.6", devices=devices)


def radeon(**attributes: Any) -> Any:
    """Return a card as clover lists it."""
    device = {
        "name": "AMD Radeon RX 580 (polaris10, LLVM 15.0.6)",
        "version": "OpenCL 1.1 Mesa 22.3.6",
        "driver_version": "22.3.6",
        "profile": "FULL_PROFILE",
        "extensions": "",
        "available": True,
        "compiler_available": True,
        "type": cl.device_type.GPU,
    }
    return SimpleNamespace(**{**device, **attributes})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[UnusableDevice]]:
    """Return a function that simulates a machine with only these platforms and returns its unusable devices."""
    monkeypatch.delenv("RUSTICL_ENABLE", raising=False)
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))

    def examined(*platforms: _Platform) -> list[UnusableDevice]:
        monkeypatch.setattr(cl, "get_platforms", lambda: list(platforms))
        return discovery.discover().unusable

    return examined


def test_the_variable_that_a_driver_requires_is_named(machine: Callable[..., list[UnusableDevice]]) -> None:
    (left_out,) = machine(rusticl())
    assert left_out.name == "rusticl (Mesa/X.org)"
    assert left_out.reason == "it lists no device, because RUSTICL_ENABLE is not set"
    for driver in ("radeonsi (AMD)", "iris (Intel)", "panfrost (Arm)", "asahi (Apple)", "llvmpipe (the processor"):
        assert driver in left_out.fix


def test_opening_the_device_names_the_variable(machine: Callable[..., list[UnusableDevice]]) -> None:
    machine(rusticl())
    with pytest.raises(RuntimeError, match=r"no OpenCL device can be used: .*RUSTICL_ENABLE is not set") as raised:
        discovery.devices()
    assert "radeonsi" in raised.value.__notes__[0]
    with pytest.raises(
        DeviceUnavailableError, match="RUSTICL_ENABLE is not set; if your GPU has no other OpenCL driver"
    ):
        discovery.select("rusticl")


def test_a_wrong_value_of_the_variable_is_shown(
    machine: Callable[..., list[UnusableDevice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUSTICL_ENABLE", "radeon")
    (left_out,) = machine(rusticl())
    assert left_out.reason == "it lists no device for RUSTICL_ENABLE=radeon"
    assert "radeonsi (AMD)" in left_out.fix
    assert "/dev/dri/renderD*" in left_out.fix
    assert "libclc-VERSION" in left_out.fix


def test_the_older_driver_is_mentioned_only_where_the_newer_one_is_missing(
    machine: Callable[..., list[UnusableDevice]],
) -> None:
    (left_out,) = machine(clover())
    assert left_out.reason == "it lists no device, and supports no more than OpenCL 1.1 Mesa 22.3.6"
    assert left_out.fix.startswith("use rusticl")
    assert [d.name for d in machine(clover(), rusticl())] == ["rusticl (Mesa/X.org)"]


def test_a_device_of_the_older_driver_is_left_out_with_a_way_to_use_it(
    machine: Callable[..., list[UnusableDevice]],
) -> None:
    (left_out,) = machine(clover(radeon()))
    assert left_out.reason == "it supports OpenCL 1.1"
    assert "RUSTICL_ENABLE" in left_out.fix
    assert "polyhal[wgpu]" in left_out.fix


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("AMD Radeon RX 580 (radeonsi, polaris10, LLVM 15.0.6)", "apt install libclang-common-15-dev)"),
        ("Mesa Intel(R) UHD Graphics 630 (CFL GT2)", "VERSION as in the libclang-cpp that `apt-cache depends"),
    ],
)
def test_a_compiler_without_its_headers_is_left_out_with_their_package(
    name: str, package: str, machine: Callable[..., list[UnusableDevice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unusable, "_compile", lambda device: _NO_HEADERS)
    (left_out,) = machine(rusticl(radeon(name=name, version="OpenCL 3.0 ")))
    assert "because clang's own headers are not installed" in left_out.reason
    assert package in left_out.fix


def test_a_build_error_names_the_package_of_the_headers() -> None:
    """The headers may be removed after the trial of the compiler."""
    shaders = SourceFolder("polyhal.shaders.opencl")
    name = "llvmpipe (LLVM 15.0.6, 256 bits)"
    for log, found in ((_NO_HEADERS, True), ("f.cl:1:1: error: undeclared", False)):
        error = build_error(shaders, "pointwise/elementwise.cl", "", [], log, name, mesa_hints.header_remedy(log, name))
        assert ("libclang-common-15-dev" in str(error)) == found


def _installed() -> bool:
    icd.prepare()
    folder = Path(os.environ.get("OCL_ICD_VENDORS") or "/etc/OpenCL/vendors")
    return any("rusticl" in file.name.lower() for file in folder.glob("*.icd"))


@pytest.mark.skipif(not _installed(), reason="Mesa's OpenCL driver is not installed")
@pytest.mark.parametrize("shape", [(300, 300), (20, 70_000)])
def test_large_products_are_right(shape: tuple[int, int]) -> None:
    """Its loops end after 65535 iterations, and the few work-items of CPU kernels would need more.

    Sums of 70,000 positive terms in float32, in two orders, differ by about 2e-5; without the last terms, by 6e-2.
    """
    program = (
        "import numpy as np; from polyhal import Device, tensor; d = Device('opencl:rusticl'); "
        f"a, b = np.random.default_rng(0).random((2, *{shape}), np.float32); "
        "np.testing.assert_allclose((tensor(a, device=d) @ tensor(b, device=d).T).numpy(), a @ b.T, rtol=1e-4)"
    )
    environment = {**os.environ, "RUSTICL_ENABLE": "llvmpipe"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
