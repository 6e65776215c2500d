"""From the start of a process to the end of its first training step, with empty caches and with filled ones.

python -m benchmarks.startup [--devices opencl:pocl,opencl:intel] [--repetitions 3] [--json FILE]

The step is that of a small perceptron on handwritten digits (see `benchmarks.first_step`); "captured" is the first captured
step of the default GPT, which is the second of all, with recording, planning and building. Every sample is a new process;
those of different competitors take turns. Cold: the caches of all drivers and frameworks are new and empty. Warm: they are
those that a cold process has left. PyTorch, tinygrad and netcl take part where they are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe, write
from benchmarks.measure import summarize
from polyhal import Device

_LIMIT = 300.0
"""Seconds after which a process is ended."""
_BATCH = 64
_WARM = 2
"""Starts with the caches that a cold one has left."""
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Start:
    """A framework on a device."""

    framework: str
    device: str

    @property
    def name(self) -> str:
        return self.device if self.framework == "polyhal" else f"{self.framework}:{self.device}".rstrip(":")

    def seconds(self, caches: Path, data: Path) -> float:
        """How long a new process takes until it says that the step is done. Raises RuntimeError with what it says else."""
        command = [sys.executable, "-m", "benchmarks.first_step", self.framework, self.device, str(data)]
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=_ROOT, env=os.environ | _places(caches), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        late = threading.Timer(_LIMIT, process.kill)
        late.start()
        line = next((text for text in process.stdout if text.startswith("loss ")), "")
        taken = time.perf_counter() - begun
        _, errors = process.communicate()
        late.cancel()
        if not line:
            said = errors.strip().splitlines()
            raise RuntimeError(said[-1] if said else f"ended with code {process.returncode} after {taken:.0f} s")
        return taken


def _places(caches: Path) -> dict[str, str]:
    """Where everything that keeps compiled kernels is told to keep them."""
    found = {
        "HOME": caches, "XDG_CACHE_HOME": caches / "xdg", "POLYHAL_CACHE_DIR": caches / "polyhal",
        "POCL_CACHE_DIR": caches / "pocl", "CUDA_CACHE_PATH": caches / "nv",
    }  # fmt: skip
    (caches / "xdg").mkdir(parents=True, exist_ok=True)
    return {**{k: str(v) for k, v in found.items()}, "DEV": "CL"}  # DEV: of tinygrad


def starts(devices: list[str]) -> list[Start]:
    """Our devices, then everything else that is installed."""
    found = [Start(who, name) for name in devices for who in ("polyhal", "captured")]
    for framework in ("torch", "tinygrad", "netcl"):
        if importlib.util.find_spec(framework) is None:
            print(f"{framework} is not installed: nothing to compare with")
        else:
            found.append(Start(framework, "" if framework != "torch" else _torch_place()))
    return found


def _torch_place() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def digits() -> dict[str, np.ndarray]:
    """A batch of scikit-learn's handwritten digits, read here so that no process has to import scikit-learn."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return {"images": (images[:_BATCH] / 16).astype(np.float32), "labels": labels[:_BATCH].astype(np.int32)}


def measure(competitors: list[Start], repetitions: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row of seconds for everyone with empty and with filled caches, and what those say that fail."""
    samples: dict[tuple[str, str], list[float]] = {
        (c.name, state): [] for c in competitors for state in ("cold", "warm")
    }
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="polyhal-startup-") as folder:
        data = Path(folder) / "digits.npz"
        np.savez(data, **digits())
        for turn in range(repetitions):
            for number, c in enumerate(competitors):
                if c.name in problems:
                    continue
                caches = Path(folder) / f"{number}-{turn}"
                try:
                    samples[c.name, "cold"].append(c.seconds(caches, data))
                    samples[c.name, "warm"] += [c.seconds(caches, data) for _ in range(_WARM)]
                except RuntimeError as error:
                    problems[c.name] = str(error)
    rows = []
    for (name, state), taken in samples.items():
        if taken and name not in problems:
            t = summarize(taken)
            rows.append({"name": name, "state": state, "seconds": [t.median, t.low, t.high]})
    return rows, problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="opencl", help="comma-separated device names")
    parser.add_argument("--repetitions", type=int, default=3, help="cold starts, each with two warm ones after it")
    parser.add_argument("--without", default="", help="frameworks to leave out, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    names = args.devices.split(",")
    competitors = [c for c in starts(names) if c.framework not in args.without.split(",")]
    rows, problems = measure(competitors, args.repetitions)
    for row in rows:
        print(f"{row['name']:<24} {row['state']} {row['seconds'][0]:6.2f} s")
    for name, problem in problems.items():
        print(f"{name:<24} {problem}")
    if args.json:
        found = {
            "benchmark": "startup",
            "repetitions": args.repetitions,
            **describe([Device(n) for n in names]),
            "rows": rows,
            "left_out": problems,
        }
        write(args.json, found)


if __name__ == "__main__":
    main()
