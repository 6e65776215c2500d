"""Graphics APIs that discovery opens: OpenGL drivers are loaded only if requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("wgpu")

LIST = """
import json, sys
from pathlib import Path
from polyhal.backends.wgpu import discovery
try:
    apis = [a.api for a in discovery.devices(every_api=True)]
    problem = ""
except RuntimeError as error:
    apis, problem = [], str(error)
maps = Path("/proc/self/maps")
libraries = maps.read_text() if maps.exists() else ""
print(json.dumps({"apis": apis, "problem": problem, "egl": "libEGL" in libraries}))
"""


def listed(code: str = LIST, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "POLYHAL_OPENGL"} | environment,
        timeout=120,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_no_opengl_driver_is_loaded_unless_it_is_requested() -> None:
    found = listed()
    assert not {"OpenGL", "OpenGLES"} & set(found["apis"])  # type: ignore[call-overload]
    assert not found["egl"]
    if not found["apis"]:
        assert "POLYHAL_OPENGL=1" in str(found["problem"])


def test_opengl_adapters_are_listed_on_request_if_a_driver_is_installed() -> None:
    without, found = listed(), listed(POLYHAL_OPENGL="1")
    assert set(without["apis"]) <= set(found["apis"])  # type: ignore[call-overload]
    if sys.platform == "linux" and found["egl"]:  # EGL is loaded even if it has no adapter
        assert "POLYHAL_OPENGL" not in str(found["problem"])


def test_the_apis_are_fixed_by_the_first_listing_of_adapters() -> None:
    code = "import wgpu; wgpu.gpu.enumerate_adapters_sync()\n" + LIST
    assert listed(code)["apis"] == listed(POLYHAL_OPENGL="1")["apis"]


def test_the_error_of_an_unknown_name_explains_how_to_list_opengl_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.backends.wgpu import discovery
    from polyhal.hal.errors import DeviceUnavailableError

    monkeypatch.setattr(discovery, "_listed", list)
    monkeypatch.delenv("POLYHAL_OPENGL", raising=False)
    with pytest.raises(DeviceUnavailableError, match="POLYHAL_OPENGL=1 also lists devices that only OpenGL supports"):
        discovery.select("no such adapter")
