"""Install a wheel into a new environment of any interpreter, and try the first minutes of a newcomer.

    python tools/smoke.py                                          # this interpreter, a wheel built from this checkout
    python tools/smoke.py --python python3.13 --extras cpu         # another interpreter, with Intel's runtime
    python tools/smoke.py --wheel dist/polyhal-0.1.0-py3-none-any.whl --json result.json

It needs the standard library only. Each step has its own process, without variables of this one, and prints its seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

ROOT = Path(__file__).parents[1]
SHORT_TRAINING = (
    "--steps",
    "3",
    "--layers",
    "1",
    "--width",
    "32",
    "--heads",
    "2",
    "--context",
    "16",
    "--batch-size",
    "2",
)
PROGRAM = """
import numpy as np, polyhal
from polyhal import nn, optim
from polyhal.nn import functional as F

device = polyhal.Device.default()
x = polyhal.tensor(np.linspace(-3, 3, 64, dtype=np.float32)[:, None], device=device)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
optimizer = optim.AdamW(model.parameters(), lr=1e-2)

@polyhal.jit
def step():
    loss = F.mse_loss(model(x), x.sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

losses = [step().item() for _ in range(20)]
assert losses[-1] < losses[0], losses
print(device)
"""
"""A captured training step on the default device."""
VARIABLES = (
    "HOME",
    "PATH",
    "TMPDIR",
    "LANG",
    "OCL_ICD_VENDORS",
    "SystemRoot",
    "PIP_CONSTRAINT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


class SmokeError(Exception):
    """A step fails."""


class CleanEnvironment:
    """A new virtual environment, and the processes that run in it. `variables` are added to those that every process has."""

    def __init__(self, folder: Path, interpreter: str, variables: dict[str, str]) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if k in VARIABLES or k.startswith("PIP_")}
        self._variables = {**kept, "POLYHAL_CACHE_DIR": str(folder / "cache"), **variables}
        self.seconds: dict[str, float] = {}
        self._scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self.run("venv", interpreter, "-m", "venv", str(folder / "venv"))

    def run(self, step: str, *command: str, code: int = 0) -> str:
        """Run a command, and return its standard output. Raises SmokeError for another exit code, and for a traceback."""
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=self.folder, env=self._variables, capture_output=True, text=True, errors="replace", check=False
        )
        self.seconds[step] = round(time.perf_counter() - start, 2)
        output = done.stdout + done.stderr
        if done.returncode != code or "Traceback (most recent call last)" in output:
            raise SmokeError(f"{step}: exit code {done.returncode}, expected {code}\n{' '.join(command)}\n{output}")
        print(f"  {step}: {self.seconds[step]:.1f} s", flush=True)
        return done.stdout

    def python(self, step: str, *arguments: str) -> str:
        """Run the environment's Python."""
        return self.run(step, str(self._scripts / "python"), *arguments)

    def polyhal(self, *arguments: str, code: int = 0) -> str:
        """Run the command line."""
        return self.run(f"polyhal {' '.join(arguments[:2])}", str(self._scripts / "polyhal"), *arguments, code=code)


def public_modules(extras: Sequence[str]) -> list[str]:
    """Return the public modules that an environment with these extras can import: the kit of tests needs pytest."""
    named = run_path(str(ROOT / "tests/architecture/public_modules.py"))
    modules = [*named["LIBRARY"], *named["APPLICATIONS"], *named["CONTRACT"]]
    return [m for m in modules if m != "polyhal.hal.testing" or "test" in extras]


def built(interpreter: str, folder: Path) -> Path:
    """Return a wheel of this checkout, built by pip from a copy of its files."""
    copy = folder / "source"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "benchmarks", "docs")
    shutil.copytree(ROOT, copy, ignore=ignored)
    command = [interpreter, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SmokeError(f"no wheel can be built:\n{done.stdout}{done.stderr}")
    (wheel,) = folder.glob("polyhal-*.whl")
    return wheel


def smoke(interpreter: str, wheel: Path, extras: Sequence[str], folder: Path) -> dict[str, Any]:
    """Try the first minutes in a new environment in `folder`. Returns facts and seconds. Raises SmokeError."""
    clean = CleanEnvironment(folder, interpreter, {})
    wanted = f"polyhal[{','.join(extras)}] @ {wheel.resolve().as_uri()}" if extras else str(wheel.resolve())
    clean.python("pip install", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
    clean.python("pip check", "-m", "pip", "check")
    version = clean.python("version", "-c", "import platform; print(platform.python_version())").strip()
    imports = "; ".join(f"import {m}" for m in public_modules(extras))
    clean.python("all public modules without a warning", "-W", "error", "-c", imports)
    device = clean.python("first program", "-c", PROGRAM).splitlines()[-1]
    clean.python("first program again", "-W", "error", "-c", PROGRAM)
    report = json.loads(clean.polyhal("doctor", "--json"))
    if not report["healthy"] or report["default"] != device:
        raise SmokeError(f"polyhal doctor reports {report['default']!r} for {device!r}, healthy: {report['healthy']}")
    missing = any("the package wgpu is not installed" in p["reason"] for p in report["problems"])
    if missing is ("wgpu" in extras):
        raise SmokeError(f"polyhal doctor says {'' if missing else 'not '}that wgpu is missing")
    clean.polyhal("--version")
    clean.polyhal("devices")
    (folder / "text.txt").write_text("To be, or not to be, that is the question. " * 200, encoding="utf-8")
    clean.polyhal("train", "text.txt", *SHORT_TRAINING, "--save-dir", "run")
    clean.polyhal("generate", "run", "--prompt", "To", "--max-tokens", "4")
    clean.polyhal("train", "no such file.txt", code=2)
    return {
        "python": version,
        "extras": list(extras),
        "device": device,
        "next step": report["next_step"],
        "seconds": clean.seconds,
    }


def main() -> int:
    """Run the steps. Returns 1 if one fails."""
    parser = argparse.ArgumentParser(description="Install Polyhal into a new environment and try it.")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the new environment")
    parser.add_argument("--wheel", type=Path, help="wheel to install; built from this checkout by default")
    parser.add_argument("--extras", default="", help="extras to install, separated by commas")
    parser.add_argument("--json", type=Path, help="write versions and seconds to this file")
    given = parser.parse_args()
    extras = [e for e in given.extras.split(",") if e]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            wheel = given.wheel or built(given.python, folder)
            result = smoke(given.python, wheel, extras, folder)
        except SmokeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"Python {result['python']}, extras {given.extras or 'none'}: passed on {result['device']}")
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
