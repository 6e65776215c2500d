"""Exported C programs against captured steps in Python: time per training step, with a batch and its loss.

Both enqueue the same kernels; Python also uploads the batch and reads the loss at each step. It needs gcc or clang.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate, calls_per_sample
from benchmarks.training_workloads import WORKLOADS
from polyhal import Device, export, jit, optim
from polyhal.hal.launch_descriptions import NamesDevice
from polyhal.models import CNN, GPT, MLP
from polyhal.nn import functional as F

_MODELS = ("mlp", "cnn", "gpt")
_PROGRAM = Path(__file__).parents[1] / "c_step.c"


class CProcess:
    """A compiled step, which runs as many steps as it is told to."""

    def __init__(self, folder: Path) -> None:
        """Compile an export, start it and wait for its first step. Raises RuntimeError for one that fails."""
        compiler = shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("no C compiler; install gcc or clang")
        program = folder / "c_step"
        sources = [folder / "step.c", *sorted((folder / "runtime").glob("*.c")), _PROGRAM]
        options = ["-std=c99", "-O2", "-DPOLYHAL_PROGRAM=step_program", f"-I{folder}", f"-I{folder / 'runtime'}"]
        subprocess.run([compiler, *options, *map(str, sources), "-o", str(program), "-ldl", "-lm"], check=True)
        self._process = subprocess.Popen(
            [str(program), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        begin = time.perf_counter()
        self.run(1)
        self.seconds_to_first_step = time.perf_counter() - begin

    def run(self, steps: int) -> None:
        """Run steps, and wait for them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the C program ended with code {self._process.wait()}")

    def close(self) -> None:
        """End the program."""
        self._process.communicate()


def make_step(name: str, device: Device) -> tuple[Callable[..., Any], np.ndarray, np.ndarray]:
    """Return a captured training step of (inputs, targets), and a batch of zeros, which the C program has, too."""
    polyhal.manual_seed(0)
    workload = WORKLOADS[name]
    x, y = (np.zeros_like(a) for a in workload.batch())
    model: Any = MLP((784, 512, 10)) if name == "mlp" else CNN() if name == "cnn" else GPT(workload.config)  # type: ignore[arg-type]
    model.to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @jit
    def step(x: polyhal.Tensor, y: polyhal.Tensor) -> polyhal.Tensor:
        optimizer.zero_grad()
        loss: polyhal.Tensor = model.loss(x, y) if workload.config is not None else F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device))
    return step, x, y


def measure(name: str, device: Device, repetitions: int) -> dict[str, Any]:
    """Measure one model on one device and print the results. Returns a row with seconds per step."""
    step, x, y = make_step(name, device)

    def python(steps: int) -> None:
        for _ in range(steps):
            step(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device)).item()

    with tempfile.TemporaryDirectory(prefix="polyhal-c-") as folder:
        process = CProcess(export.c(step, folder))
        steps = calls_per_sample(lambda: python(1), 0.1)
        competitors = {"C": lambda: process.run(steps), "Python": lambda: python(steps)}
        try:
            timings = alternate(competitors, repetitions)
        finally:
            process.close()
    what = WORKLOADS[name].what
    print(f"\n{what}, {device.info.name} ({device.name}), per step")
    row: dict[str, Any] = {"model": name, "what": what, "device": device.name, "who": {}}
    for who, timing in timings.items():
        row["who"][who] = [t / steps for t in (timing.median, timing.low, timing.high)]
        print(f"  {who:<8} {timing.text(1e3 / steps, 'ms')}", flush=True)
    print(f"  C, to the end of the first step: {process.seconds_to_first_step:.2f} s", flush=True)
    return row | {"first": process.seconds_to_first_step}


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("c_steps", __doc__)
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=list(_MODELS))
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices, lambda device: isinstance(device.backend, NamesDevice))
    rows = [measure(name, d, args.repetitions) for d in devices for name in args.models]
    write(args.json, {"benchmark": "c_steps", **describe_machine(devices), "rows": rows})
    return 0
