"""Run programs in a separate process, with plug-ins installed in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from broken_plugins import Broken


def install(folder: Path, plugin: Broken) -> None:
    """Write a distribution with one module, like pip."""
    meta = folder / f"{plugin.module}-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {plugin.name}\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[polyhal.backends]\n{plugin.name} = {plugin.module}\n")
    (folder / f"{plugin.module}.py").write_text(plugin.text)


def run(code: str, folder: Path, seconds: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the plug-ins of a folder, an empty cache, and a time limit for each step of a trial."""
    given = {
        "PYTHONPATH": str(folder),
        "POLYHAL_DISABLE": "opencl,wgpu",
        "POLYHAL_PROBE_TIMEOUT": seconds,
        "POLYHAL_TRIALS": "1",
        "POLYHAL_CACHE_DIR": str(folder / "cache"),
    }
    inherited = {k: v for k, v in os.environ.items() if k != "POLYHAL_DEVICE"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=inherited | given | environment, timeout=120
    )
