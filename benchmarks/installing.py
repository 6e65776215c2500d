"""Sizes, seconds and first messages of installs into new environments, and seconds of `make train` from nothing.

    python -m benchmarks.installing dist/polyhal-0.1.0-py3-none-any.whl     # measures, and writes results/installing.json
    python -m benchmarks.installing --train dist/polyhal-0.1.0-py3-none-any.whl   # and `make train` in a copy of the checkout
    python -m benchmarks.installing --messages dist/polyhal-0.1.0-py3-none-any.whl   # records first messages only

Downloads are the files that pip fetches, the wheel of Polyhal included; installed sizes are the bytes of the environment's
files beyond an empty environment's. Processor seconds do not depend on other programs, elapsed seconds do, and on the network.
First messages are the output of `polyhal devices` without variables of this process and without the system's OpenCL drivers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.distribution import ROOT, copied, tracked
from tools.smoke import CleanEnvironment

RESULT = ROOT / "benchmarks/results/installing.json"
PAGE = "docs/installing.md"
MARKER = "<!-- `make generate` writes the rest -->\n"
KINDS = ("", "cpu", "wgpu", "pocl")
"""Extras of the installs that are measured."""
_COLUMNS = 110
"""Width of the terminal in which first messages are recorded."""


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


def messages(wheel: Path, extras: str) -> list[str]:
    """Return the lines of `polyhal devices` after an install of `wheel` with these extras."""
    with tempfile.TemporaryDirectory() as name:
        clean = CleanEnvironment(Path(name), sys.executable, {})
        wanted = f"polyhal[{extras}] @ {wheel.resolve().as_uri()}"
        clean.python("pip install", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
        return _devices(Path(name))


def _devices(folder: Path) -> list[str]:
    """Return the lines of `polyhal devices` of the environment in `folder`: its notices, then its output."""
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    for name in ("home", "temporary", "no-drivers"):
        (folder / name).mkdir()
    environment = {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join((str(scripts), os.defpath)),
        "TMPDIR": str(folder / "temporary"),
        "OCL_ICD_VENDORS": str(folder / "no-drivers"),
        "COLUMNS": str(_COLUMNS),
    }
    command = [str(scripts / "polyhal"), "devices"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    rows = (done.stderr + done.stdout).replace(str(folder), "~").splitlines()
    return [line for row in rows for line in ([row.rstrip()] if len(row) <= _COLUMNS else textwrap.wrap(row, _COLUMNS))]


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
        sizes = f"{row['download'] / 1e6:.0f} | {row['installed'] / 1e6:.0f}"
        lines.append(
            f"| `{_command(row['extras'])}` | {sizes} | {row['processor_seconds']:.0f} | {row['seconds']:.0f} |"
        )
    if "train" in result:
        seconds = result["train"]
        lines.append(f"| `make train`, 20 steps | | | {seconds['processor_seconds']:.0f} | {seconds['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def _command(extras: str) -> str:
    return f'pip install "polyhal[{extras}]"' if extras else "pip install polyhal"


def first_messages(result: dict[str, Any]) -> str:
    """Return the recorded output of `polyhal devices` of each install."""
    sentence = (
        "Output of `polyhal devices` after each install, on the same machine, with no OpenCL driver of the system:"
    )
    parts = [f"\n## First messages\n\n{sentence}\n"]
    for extras, lines in result["messages"].items():
        text = "\n".join(f"    {line}" for line in ("$ polyhal devices", *lines))
        parts.append(f"\n`{_command(extras)}`:\n\n{text}\n")
    return "".join(parts)


def page(root: Path) -> dict[str, str]:
    """Return the page with the table and the first messages."""
    written, marker, _ = (root / PAGE).read_text(encoding="utf-8").partition(MARKER)
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    return {PAGE: f"{written}{marker}\n{table(result)}{first_messages(result)}"}


def main() -> None:
    """Measure every kind of install, write the result and print the table."""
    parser = argparse.ArgumentParser(description="Measure sizes and seconds of installs, and record first messages.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--train", action="store_true", help="also measure `make train` from nothing")
    parser.add_argument(
        "--messages", action="store_true", help="record first messages only, and keep sizes and seconds"
    )
    given = parser.parse_args()
    if given.messages:
        _store(json.loads(RESULT.read_text(encoding="utf-8")) | {"messages": _messages(given.wheel)})
        return
    result: dict[str, Any] = {
        "benchmark": "installing",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "installs": [measured(given.wheel, extras) for extras in KINDS],
    }
    if given.train:
        result["train"] = trained()
    _store(result | {"messages": _messages(given.wheel)})
    print(table(result))


def _messages(wheel: Path) -> dict[str, list[str]]:
    return {extras: messages(wheel, extras) for extras in KINDS}


def _store(result: dict[str, Any]) -> None:
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
