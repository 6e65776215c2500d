"""Sizes and seconds of installs into new environments, and of `make train` from nothing.

    python -m benchmarks.installing dist/polyhal-0.1.0-py3-none-any.whl     # measures, and writes results/installing.json
    python -m benchmarks.installing --train dist/polyhal-0.1.0-py3-none-any.whl   # and `make train` in a copy of the checkout

Downloads are the files that pip fetches, the wheel of Polyhal included; installed sizes are the bytes of the environment's
files beyond an empty environment's. Processor seconds do not depend on other programs, elapsed seconds do, and on the network.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.distribution import ROOT, copied, tracked

RESULT = ROOT / "benchmarks/results/installing.json"
PAGE = "docs/installing.md"
MARKER = "<!-- `make generate` writes the rest -->\n"
KINDS = ("", "cpu", "wgpu", "pocl")
"""Extras of the installs that are measured."""


def measured(wheel: Path, extras: str) -> dict[str, Any]:
    """Return bytes and seconds of an install of `wheel` with these extras."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = f"polyhal[{extras}] @ {wheel.resolve().as_uri()}"
        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        empty = _bytes(folder / "venv")
        python = str(folder / ("venv/Scripts/python.exe" if os.name == "nt" else "venv/bin/python"))
        times = _timed([python, *pip, "install", wanted], folder)
        installed = _bytes(folder / "venv") - empty
        subprocess.run([python, *pip, "download", "--dest", str(folder / "files"), wanted], check=True)
        return {"extras": extras, "download": _bytes(folder / "files"), "installed": installed, **times}


def trained() -> dict[str, float]:
    """Return the seconds of `make train` in a copy of the checkout without an environment, for 20 steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = copied(ROOT, tracked(ROOT), Path(name))
        (folder / "text.txt").write_text("To be, or not to be, that is the question. " * 200, encoding="utf-8")
        return _timed(["make", "--no-print-directory", "train", "ARGS=text.txt --steps 20 --save-dir run"], folder)


def _timed(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a command, without pip's cache and with an empty cache of kernels in `folder`. Returns its seconds."""
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1", "POLYHAL_CACHE_DIR": str(folder / "cache")}
    before, start = os.times(), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    after, elapsed = os.times(), time.perf_counter() - start
    user, system = after.children_user - before.children_user, after.children_system - before.children_system
    return {"processor_seconds": round(user + system, 1), "seconds": round(elapsed, 1)}


def _bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def table(result: dict[str, Any]) -> str:
    """Return the results as a table."""
    lines = [
        f"Measured with Python {result['python']} on {result['machine']}, {result['date']}:",
        "",
        "| install | download, MB | installed, MB | processor, s | elapsed, s |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["installs"]:
        name = f'pip install "polyhal[{row["extras"]}]"' if row["extras"] else "pip install polyhal"
        sizes = f"{row['download'] / 1e6:.0f} | {row['installed'] / 1e6:.0f}"
        lines.append(f"| `{name}` | {sizes} | {row['processor_seconds']:.0f} | {row['seconds']:.0f} |")
    if "train" in result:
        seconds = result["train"]
        lines.append(f"| `make train`, 20 steps | | | {seconds['processor_seconds']:.0f} | {seconds['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def page(root: Path) -> dict[str, str]:
    """Return the page with the table."""
    written, marker, _ = (root / PAGE).read_text(encoding="utf-8").partition(MARKER)
    return {PAGE: f"{written}{marker}\n{table(json.loads(RESULT.read_text(encoding='utf-8')))}"}


def main() -> None:
    """Measure every kind of install, write the result and print the table."""
    parser = argparse.ArgumentParser(description="Measure sizes and seconds of installs.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--train", action="store_true", help="also measure `make train` from nothing")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "installing",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "installs": [measured(given.wheel, extras) for extras in KINDS],
    }
    if given.train:
        result["train"] = trained()
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
