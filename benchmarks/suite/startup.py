"""Time from the start of a process to the end of its first training step, with cold and with warm caches.

The step trains a small perceptron on handwritten digits (see `benchmarks.first_step`). "captured" is the first captured step
of the default GPT, with capture, planning and building; it is the second step overall, as the first one runs eagerly. Every
sample is a new process, and competitors alternate. Cold: the caches of all drivers and frameworks are empty. Warm: they are
as a cold process left them. PyTorch, tinygrad and netcl take part if they are installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import summarize
from polyhal import Device

_TIMEOUT = 300.0
"""Seconds after which a process is killed."""
_BATCH = 64
_WARM_STARTS = 2
"""Warm starts after each cold one."""
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class StartupCompetitor:
    """A framework on a device."""

    framework: str
    device: str

    @property
    def name(self) -> str:
        return self.device if self.framework == "polyhal" else f"{self.framework}:{self.device}".rstrip(":")

    def seconds(self, caches: Path, data: Path) -> float:
        """Return seconds until a new process reports its first step. Raises RuntimeError with its last message."""
        command = [sys.executable, "-m", "benchmarks.first_step", self.framework, self.device, str(data)]
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=os.environ | cache_variables(caches),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        timer = threading.Timer(_TIMEOUT, process.kill)
        timer.start()
        line = next((text for text in process.stdout if text.startswith("loss ")), "")
        seconds = time.perf_counter() - begin
        _, stderr = process.communicate()
        timer.cancel()
        if not line:
            lines = stderr.strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"exited with code {process.returncode} after {seconds:.0f} s")
        return seconds


def cache_variables(caches: Path) -> dict[str, str]:
    """Return environment variables that move every cache of compiled kernels to the folder `caches`."""
    folders = {
        "HOME": caches,
        "XDG_CACHE_HOME": caches / "xdg",
        "POLYHAL_CACHE_DIR": caches / "polyhal",
        "POCL_CACHE_DIR": caches / "pocl",
        "CUDA_CACHE_PATH": caches / "nv",
    }
    (caches / "xdg").mkdir(parents=True, exist_ok=True)
    return {**{k: str(v) for k, v in folders.items()}, "DEV": "CL"}  # DEV selects tinygrad's OpenCL


def make_competitors(devices: Sequence[str]) -> list[StartupCompetitor]:
    """Return Polyhal on each device, then the other frameworks that are installed."""
    competitors = [StartupCompetitor(who, name) for name in devices for who in ("polyhal", "captured")]
    for framework in ("torch", "tinygrad", "netcl"):
        if importlib.util.find_spec(framework) is None:
            print(f"{framework} is not installed and not measured")
        else:
            competitors.append(StartupCompetitor(framework, "" if framework != "torch" else _torch_device()))
    return competitors


def _torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def digits() -> dict[str, np.ndarray]:
    """Return a batch of handwritten digits, loaded here so that the processes need not import scikit-learn."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return {"images": (images[:_BATCH] / 16).astype(np.float32), "labels": labels[:_BATCH].astype(np.int32)}


def measure(competitors: list[StartupCompetitor], repetitions: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return rows of seconds with cold and warm caches, and the errors of competitors that failed."""
    samples: dict[tuple[str, str], list[float]] = {
        (c.name, state): [] for c in competitors for state in ("cold", "warm")
    }
    errors: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="polyhal-startup-") as folder:
        data = Path(folder) / "digits.npz"
        np.savez(data, **digits())
        for repetition in range(repetitions):
            for number, c in enumerate(competitors):
                if c.name in errors:
                    continue
                caches = Path(folder) / f"{number}-{repetition}"
                try:
                    samples[c.name, "cold"].append(c.seconds(caches, data))
                    samples[c.name, "warm"] += [c.seconds(caches, data) for _ in range(_WARM_STARTS)]
                except RuntimeError as error:
                    errors[c.name] = str(error)
    rows = []
    for (name, state), seconds in samples.items():
        if seconds and name not in errors:
            t = summarize(seconds)
            rows.append({"name": name, "state": state, "seconds": [t.median, t.low, t.high]})
    return rows, errors


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("startup", __doc__, devices="opencl")
    parser.add_argument("--repetitions", type=int, default=3, help="cold starts, each followed by two warm ones")
    parser.add_argument("--without", default="", help="comma-separated frameworks to leave out")
    args = parser.parse_args(arguments)
    names = args.devices.split(",")
    devices = [Device(n) for n in names]
    competitors = [c for c in make_competitors(names) if c.framework not in args.without.split(",")]
    rows, errors = measure(competitors, args.repetitions)
    for row in rows:
        print(f"{row['name']:<24} {row['state']} {row['seconds'][0]:6.2f} s")
    for name, error in errors.items():
        print(f"{name:<24} {error}")
    result = {
        "benchmark": "startup",
        "repetitions": args.repetitions,
        **describe_machine(devices),
        "rows": rows,
        "left_out": errors,
    }
    write(args.json, result)
    return 0
