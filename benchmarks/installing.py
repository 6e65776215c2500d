"""Sizes, seconds and first messages of installs into new environments, and seconds of `make train` from nothing.

    python -m benchmarks.installing dist/polyhal-0.1.0-py3-none-any.whl     # measures, and writes results/installing.json
    python -m benchmarks.installing --train dist/polyhal-0.1.0-py3-none-any.whl   # and `make train` in a copy of the checkout
    python -m benchmarks.installing --messages dist/polyhal-0.1.0-py3-none-any.whl   # first messages only, with pip's cache
    python -m benchmarks.installing --only cpu,wgpu dist/polyhal-0.1.0-py3-none-any.whl   # others keep their results

Downloads are the files that pip fetches, the wheel of Polyhal included; installed sizes are the bytes of the environment's
files beyond an empty environment's. Processor seconds do not depend on other programs, elapsed seconds do, and on the network.
First messages are the output of `polyhal devices` without variables of this process and without the system's OpenCL drivers.
Each result is written at once. A part that fails or exceeds `--limit` keeps its earlier result, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tools.distribution import ROOT, copied, tracked

RESULT = ROOT / "benchmarks/results/installing.json"
PAGE = "docs/installing.md"
MARKER = "<!-- `make generate` writes the rest -->\n"
KINDS = ("", "cpu", "wgpu", "pocl")
"""Extras of the installs that are measured."""
_COLUMNS = 110
"""Width of the terminal in which first messages are recorded."""
_LIMIT = 600.0
"""Seconds of a command, by default."""
_SHOWN = 5
"""Number of last lines of a failed command that are shown."""


class InstallError(Exception):
    """A command fails, or exceeds its time."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands in a folder, with a time limit for each."""

    folder: Path
    limit: float

    def run(self, *command: str, environment: dict[str, str] | None = None) -> str:
        """Run a command, and return its messages and its output. Raises InstallError."""
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=out, stderr=out, start_new_session=os.name == "posix"
            )
            try:
                code: int | None = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            out.seek(0)
            text = out.read()
        if code != 0:
            ending = f"not complete after {self.limit:g} s" if code is None else f"exit code {code}"
            last = "\n".join(f"    {line}" for line in text.splitlines()[-_SHOWN:])
            raise InstallError(f"{' '.join(command)}: {ending}\n{last}")
        return text

    def timed(self, *command: str) -> dict[str, float]:
        """Run a command, without pip's cache and with an empty cache of kernels. Returns its seconds. Raises InstallError."""
        environment = {**os.environ, "PIP_NO_CACHE_DIR": "1", "POLYHAL_CACHE_DIR": str(self.folder / "cache")}
        before, start = os.times(), time.perf_counter()
        self.run(*command, environment=environment)
        after, elapsed = os.times(), time.perf_counter() - start
        user, system = after.children_user - before.children_user, after.children_system - before.children_system
        return {"processor_seconds": round(user + system, 1), "seconds": round(elapsed, 1)}

    def pip(self) -> tuple[str, ...]:
        """Make a virtual environment, and return the beginning of its pip's commands."""
        self.run(sys.executable, "-m", "venv", str(self.folder / "venv"))
        return (str(self.scripts / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check")

    @property
    def scripts(self) -> Path:
        """Folder of the environment's programs."""
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes that it started."""
    if process.poll() is None:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def _wanted(wheel: Path, extras: str) -> str:
    return f"polyhal[{extras}] @ {wheel.resolve().as_uri()}"


def measured(wheel: Path, extras: str, limit: float) -> dict[str, Any]:
    """Return bytes and seconds of an install of `wheel` with these extras. Raises InstallError."""
    with tempfile.TemporaryDirectory() as name:
        commands = Commands(Path(name), limit)
        pip = commands.pip()
        empty = _bytes(commands.folder / "venv")
        times = commands.timed(*pip, "install", _wanted(wheel, extras))
        installed = _bytes(commands.folder / "venv") - empty
        commands.run(*pip, "download", "--dest", str(commands.folder / "files"), _wanted(wheel, extras))
        today = time.strftime("%Y-%m-%d")
        return {
            "extras": extras,
            "date": today,
            "download": _bytes(commands.folder / "files"),
            "installed": installed,
            **times,
        }


def messages(wheel: Path, extras: str, limit: float) -> list[str]:
    """Return the lines of `polyhal devices` after an install of `wheel` with these extras. Raises InstallError."""
    with tempfile.TemporaryDirectory() as name:
        commands = Commands(Path(name), limit)
        commands.run(*commands.pip(), "install", _wanted(wheel, extras))
        return _devices(commands)


def _devices(commands: Commands) -> list[str]:
    """Return the lines of `polyhal devices`: its notices and its output."""
    folder = commands.folder
    for name in ("home", "temporary", "no-drivers"):
        (folder / name).mkdir()
    environment = {
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join((str(commands.scripts), os.defpath)),
        "TMPDIR": str(folder / "temporary"),
        "OCL_ICD_VENDORS": str(folder / "no-drivers"),
        "COLUMNS": str(_COLUMNS),
    }
    text = commands.run(str(commands.scripts / "polyhal"), "devices", environment=environment)
    rows = text.replace(str(folder), "~").splitlines()
    return [line for row in rows for line in ([row.rstrip()] if len(row) <= _COLUMNS else textwrap.wrap(row, _COLUMNS))]


def trained(limit: float) -> dict[str, float]:
    """Return the seconds of `make train` in a copy of the checkout without an environment, for 20 steps."""
    with tempfile.TemporaryDirectory() as name:
        commands = Commands(copied(ROOT, tracked(ROOT), Path(name)), limit)
        text = "To be, or not to be, that is the question. " * 200
        (commands.folder / "text.txt").write_text(text, encoding="utf-8")
        return commands.timed("make", "--no-print-directory", "train", "ARGS=text.txt --steps 20 --save-dir run")


def _bytes(folder: Path) -> int:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def table(result: dict[str, Any]) -> str:
    """Return the results as a table."""
    dates = sorted({row["date"] for row in result["installs"]})
    lines = [
        f"Measured with Python {result['python']} on {result['machine']}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}:",
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


def main() -> int:
    """Measure every kind of install, write each result and print the table. Returns 1 if a part fails."""
    parser = argparse.ArgumentParser(description="Measure sizes and seconds of installs, and record first messages.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--train", action="store_true", help="also measure `make train` from nothing")
    parser.add_argument(
        "--messages", action="store_true", help="record first messages only, and keep sizes and seconds"
    )
    parser.add_argument("--only", help="extras of installs, separated by commas; `none` for the install without extras")
    parser.add_argument("--limit", type=float, default=_LIMIT, help="seconds of a command")
    given = parser.parse_args()
    if not given.wheel.is_file():
        parser.error(f"no file {given.wheel}; expected a wheel, such as `make dist` writes")
    kinds = KINDS if given.only is None else tuple(given.only.replace("none", "").split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"unknown extras {', '.join(sorted(unknown))}; expected some of none, {', '.join(KINDS[1:])}")
    result: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    if not given.messages:
        result["python"] = platform.python_version()
        result["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    failed = 0
    for title, work, keep in _parts(given, kinds, result):
        print(f"{title} ...", flush=True)
        try:
            keep(work())
        except InstallError as error:
            failed += 1
            print(f"  failed, and its earlier result stays: {error}", flush=True)
        else:
            RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))
    if failed:
        print(f"{failed} parts failed", file=sys.stderr)
    return 1 if failed else 0


def _parts(
    given: argparse.Namespace, kinds: Sequence[str], result: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any], Callable[[Any], object]]]:
    """Yield a title for each part, the function that measures it, and the function that puts its result into `result`."""
    for extras in kinds:
        if not given.messages:
            yield _command(extras), partial(measured, given.wheel, extras, given.limit), partial(_keep_install, result)
        said = partial(messages, given.wheel, extras, given.limit)
        yield f"{_command(extras)}: first messages", said, partial(result["messages"].__setitem__, extras)
    if given.train:
        yield "make train", partial(trained, given.limit), partial(result.__setitem__, "train")


def _keep_install(result: dict[str, Any], row: dict[str, Any]) -> None:
    rows = {r["extras"]: r for r in result["installs"]} | {row["extras"]: row}
    result["installs"] = [rows[extras] for extras in KINDS if extras in rows]


if __name__ == "__main__":
    raise SystemExit(main())
