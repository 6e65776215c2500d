"""Training steps of PyTorch programs on Polyhal's device, compared with PyTorch's own, and the first steps.

Eagerly, recorded by `polyhal.torch.jit`, compiled by `torch.compile(backend="polyhal")`, against PyTorch's eager steps and
its compiler, on the CPU or, with `--size gpu`, on CUDA, there also as CUDA graphs, and against equal steps of Polyhal's
own library. Losses of the first steps have to agree with PyTorch's. The first steps run in a new process with empty
caches of kernels; Python's modules are compiled, as they are after an installation.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.frameworks.pytorch_ways import GRAPHS, PEER, PEERS, TRACED
from benchmarks.result_files import describe_machine, write
from benchmarks.suite.startup import cache_variables
from benchmarks.timing import TimingSummary, alternate
from benchmarks.torch_peer import TorchPeer
from benchmarks.training_workloads import PRECISIONS
from polyhal import Device

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT = 900.0
_COMPARED = 6
"""Steps whose losses are compared."""
_TOLERANCE = {"highest": 4e-3, "high": 1e-2, "bfloat16": 3e-2}
"""Relative tolerance of losses. AdamW's first steps are as long for gradients that are mere rounding errors as for
others: after six steps of ResNet-18 on 8 images of 64x64, PyTorch's losses with oneDNN and without it differ by
1.4e-3."""
_SAMPLE_SECONDS = 0.2
_WARM_RUNS = 3
"""Processes that measure first steps with the caches; the one whose first step took the processor the least time counts."""


def main(arguments: Sequence[str]) -> int:
    try:
        import torch

        from benchmarks.torch_step_workloads import WHO, WORKLOADS_BY_SIZE
    except ImportError:
        print("torch_steps: PyTorch is not installed, nothing is measured")
        return 0
    known = tuple(dict.fromkeys(w.name for ws in WORKLOADS_BY_SIZE.values() for w in ws))
    parser = make_parser("torch_steps", __doc__)
    parser.add_argument("--size", choices=tuple(WORKLOADS_BY_SIZE), default="cpu")
    parser.add_argument("--models", type=functools.partial(choices, known=known), help=f"any of {', '.join(known)}")
    parser.add_argument(
        "--who", type=functools.partial(choices, known=WHO), default=list(WHO), help=f"any of {', '.join(WHO)}"
    )
    parser.add_argument("--precisions", type=functools.partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument(
        "--one-core", action="store_true", help="run on one core and measure the processor's time, for machines in use"
    )
    parser.add_argument(
        "--no-first-steps", action="store_true", help="do not start processes that measure the first steps"
    )
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    os.environ["POLYHAL_FALLBACK"] = "error"  # work on the CPU is not a result of the device
    if args.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    devices = open_devices(args.devices)
    machine = {**describe_machine(devices), "torch": torch.__version__}
    result: dict[str, Any] = {"benchmark": "torch_steps", **machine, "one_core": args.one_core, "rows": []}
    agree = True
    for workload in WORKLOADS_BY_SIZE[args.size]:
        if args.models is not None and workload.name not in args.models:
            continue
        if workload.package and find_spec(workload.package) is None:
            print(f"{workload.name}: {workload.package} is not installed, its model is not measured")
            continue
        for precision in args.precisions:
            for device in devices:
                place = "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
                who = [w for w in args.who if _takes_part(w, workload, place)]
                first = not args.no_first_steps
                row = measure(
                    args.size, workload, who, device, place, precision, args.repetitions, first, args.one_core
                )
                agree &= row["agrees"]
                result["rows"].append(row)
                write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0 if agree else 1


def _takes_part(who: str, workload: Any, place: str) -> bool:
    """Return whether a competitor can take part: its compiler is installed, or Polyhal's library has the model."""
    from torch import _dynamo

    from benchmarks.torch_step_workloads import COMPILED, OWN

    if who == COMPILED:
        return "polyhal" in _dynamo.list_backends()
    if who == OWN:
        return bool(workload.twin)
    if who == TRACED:
        return place == "cpu"
    return who not in GRAPHS or place == "cuda"


def measure(
    size: str,
    workload: Any,
    who: Sequence[str],
    device: Device,
    place: str,
    precision: str,
    repetitions: int,
    first: bool,
    one_core: bool,
) -> dict[str, Any]:
    """Measure one step in all competitors and print the results. Returns a row."""
    from benchmarks.torch_step_workloads import OWN, prepare

    clock = time.process_time if one_core else time.perf_counter
    with ExitStack() as processes:
        steps: dict[str, Any] = {}
        for w in (x for x in who if x != TRACED):
            if place == "cuda" and w in PEERS:
                steps[w] = processes.enter_context(TorchPeer(size, workload.name, w, precision))
            else:
                steps[w] = prepare(workload, w, device, place, precision)
        losses = {w: [float(step()) for _ in range(_COMPARED)] for w, step in steps.items()}
        timings = alternate(steps, repetitions, min_seconds=_SAMPLE_SECONDS, clock=clock)
    compared = {w: x for w, x in losses.items() if w != OWN and w not in PEERS}
    difference = _difference(compared, losses.get(PEER))
    row: dict[str, Any] = {
        "model": workload.name,
        "what": workload.what,
        "device": device.name,
        "place": place,
        "precision": precision,
        "items": workload.items,
        "tokens": bool(workload.vocabulary),
        "difference": difference,
        "agrees": difference <= _TOLERANCE[precision],
        "who": {},
    }
    for w in (*timings, *((TRACED,) if first and TRACED in who else ())):
        t = timings.get(w)
        row["who"][w] = {} if t is None else _figures(t) | {"losses": losses[w]}
        if first:
            row["who"][w] |= _first_steps(size, workload.name, w, device, place, precision)
        seconds = ", ".join(f"{s:.2f}" for s in row["who"][w].get("first_s", ()))
        title = f"{device.name:<10} {workload.name:<10} {precision:<9} {w:<18}"
        print(f"{title} {'' if t is None else t.text(1e3, 'ms')}  first {seconds} s", flush=True)
    print(f"{device.name:<10} {workload.name:<10} losses differ by {difference:.1e}", flush=True)
    steps.clear()
    gc.collect()
    device.empty_cache()
    return row


def _figures(t: TimingSummary) -> dict[str, float]:
    return {"ms": t.median * 1e3, "low_ms": t.low * 1e3, "high_ms": t.high * 1e3}


def _difference(losses: Mapping[str, Sequence[float]], wanted: Sequence[float] | None) -> float:
    """Return the largest relative difference of a loss from PyTorch's; 0 if PyTorch does not take part."""
    if wanted is None:
        return 0.0
    return max(abs(a - b) / abs(b) for own in losses.values() for a, b in zip(own, wanted, strict=True))


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for compiled Python modules, which pip and the first import of a module leave with users."""
    return tempfile.TemporaryDirectory()


def _defaults() -> dict[str, str]:
    """Return the environment without this benchmark's settings: first steps are measured as users have them."""
    left = {k: v for k, v in os.environ.items() if k not in ("POLYHAL_BUILD_AHEAD", "PYTHONDONTWRITEBYTECODE")}
    return left | {"PYTHONPYCACHEPREFIX": _bytecode().name}


def _first_steps(size: str, model: str, who: str, device: Device, place: str, precision: str) -> dict[str, list[float]]:
    """Return seconds of the first steps, also of the processor, in a new process without caches and in one with them.

    Raises RuntimeError with the last message of a process that fails.
    """
    arguments = (size, model, who, device.name, place, precision)
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as unmeasured:
        _run_first_steps(arguments, unmeasured)  # compiles all Python modules that the steps import
    with tempfile.TemporaryDirectory() as caches:
        for name, runs in (("first", 1), ("again", _WARM_RUNS)):
            times = min((_run_first_steps(arguments, caches) for _ in range(runs)), key=lambda t: t["processor"][0])
            found |= {f"{name}_s": times["seconds"], f"{name}_cpu_s": times["processor"]}
    return found


def _run_first_steps(arguments: Sequence[str], caches: str) -> dict[str, list[float]]:
    """Return the times of the first steps of a process whose caches of kernels are in a folder. Raises RuntimeError."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.torch_first_steps", *arguments],
        cwd=_ROOT,
        env=_defaults() | cache_variables(Path(caches)) | {"TORCHINDUCTOR_CACHE_DIR": caches},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1]
        raise RuntimeError(f"the first steps of {arguments[2]} failed: {last}")
    times: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return times
