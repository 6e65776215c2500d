"""Distributions of the examples, installed as a stranger's would be: by pip, into a folder of their own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"
_SETUPTOOLS = 77


@dataclass(frozen=True, slots=True)
class Installed:
    """A copy of a distribution's sources, and the folder into which it was installed."""

    sources: Path
    site: Path

    def run(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Python with the distribution installed, and no other figures or devices in play."""
        path = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH", "")]))
        fixed = {"PYTHONPATH": path, "POLYHAL_MEASURE_TIMEOUT": "0", "COLUMNS": "200"}
        environment = {"POLYHAL_DISABLE": "wgpu"} | os.environ | fixed  # its drivers take longest to open
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=self.sources,
            env=environment,
        )


def install(name: str, folder: Path) -> Installed:
    """Install the distribution in examples/plugins/`name`."""
    sources, site = folder / "sources", folder / "site"
    shutil.copytree(PLUGINS / name, sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if _has_setuptools():
        command.append("--no-build-isolation")  # else pip downloads it
    subprocess.run([*command, "--target", str(site), str(sources)], check=True, timeout=300)
    return Installed(sources, site)


def _has_setuptools() -> bool:
    if importlib.util.find_spec("setuptools") is None:
        return False
    return int(importlib.metadata.version("setuptools").split(".")[0]) >= _SETUPTOOLS


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install("template", tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="module")
def cupy_plugin(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install("cupy", tmp_path_factory.mktemp("cupy"))


@pytest.fixture(scope="module")
def ops_package(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install("ops", tmp_path_factory.mktemp("ops"))


@pytest.fixture
def kit_sample(pytestconfig: pytest.Config) -> list[str]:
    """Return the options of this run that select a sample, for runs of the kit on a distribution."""
    return [f"--polyhal-{name}={pytestconfig.getoption(f'polyhal_{name}')}" for name in ("sample", "seed")]
