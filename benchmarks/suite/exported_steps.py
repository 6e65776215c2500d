"""Whole steps of six models on other runtimes: XLA, exports to C, and pages in a browser, each against a peer.

Numbers of the first runs are compared before anything is timed. XLA's peer is the same step written by hand in JAX; it needs
JAX, and the plug-in on the path: `PYTHONPATH=examples/plugins/xla/src`. C and pages have the captured step in Python as their
peer, on the same OpenCL device and on wgpu with Chromium's own Vulkan driver. Every run passes its arguments and reads its
result. Times of XLA are processor time, for which `XLA_FLAGS=--xla_cpu_multi_thread_eigen=false` keeps it on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import choices
from benchmarks.result_files import describe_machine, write
from benchmarks.running_steps import CStep, FunctionStep, PageStep, RunningStep, in_python
from benchmarks.step_models import MODELS, ModelStep, StepModel, captured_step
from benchmarks.timing import alternate
from polyhal import Device, manual_seed
from polyhal.hal.errors import PolyhalError
from polyhal.hal.launch_descriptions import NamesDevice
from polyhal.hal.system.discovery.registry import registry

TARGETS = ("xla", "c", "page")
_WARM_UP, _COMPARED = 3, 4
"""Runs that record a step, and runs whose results are compared."""
_TOLERANCE = 1e-3
"""Relative difference from JAX: float32 sums in another order, amplified by Adam's division in the first steps."""
_SAMPLE = 0.02
"""Seconds per sample, at least."""


def _arguments(model: StepModel, start: int) -> list[Any]:
    return [model.inputs(run) for run in range(start, start + _COMPARED)]


def _made(name: str) -> StepModel:
    manual_seed(0)
    return MODELS[name]()


class _Pair:
    """A step on a runtime, its peer, and the results of both."""

    def __init__(self, ours: RunningStep, peer: RunningStep, runs: Sequence[Any]) -> None:
        self.ours, self.peer = ours, peer
        self._results = ours.results(runs), peer.results(runs)

    @property
    def difference(self) -> float:
        """The largest difference of a result, relative to the largest number of its run."""
        pairs = zip(*self._results, strict=True)
        return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


def _recorded(model: StepModel, device: Device) -> ModelStep:
    step = captured_step(model, device)
    in_python(step, device).results([model.inputs(run) for run in range(_WARM_UP)])
    return step


def _on_xla(name: str, device: Device) -> _Pair:
    from benchmarks.frameworks.jax_models import jax_step

    model = _made(name)
    by_hand = FunctionStep(jax_step(name, model))
    return _Pair(in_python(captured_step(model, device), device), by_hand, _arguments(model, 0))


def _in_c(name: str, device: Device) -> _Pair:
    model = _made(name)
    step = _recorded(model, device)
    return _Pair(CStep(step.captured), in_python(step, device), _arguments(model, _WARM_UP))


class _Pages:
    """Pages in one headless Chromium."""

    def __init__(self) -> None:
        from tests.export.chromium import Chromium

        self._browser = Chromium()

    def pair(self, name: str, device: Device) -> _Pair:
        model = _made(name)
        step = _recorded(model, device)
        return _Pair(PageStep(step.captured, self._browser), in_python(step, device), _arguments(model, _WARM_UP))


def _use_chromium_driver() -> None:
    """Let wgpu open the Vulkan driver that comes with Chromium, so that both run on the same."""
    from tests.export.chromium import PROGRAM

    folders = [Path("/usr/lib/chromium"), *([Path(PROGRAM).resolve().parent] if PROGRAM else [])]
    found = next((f / "vk_swiftshader_icd.json" for f in folders if (f / "vk_swiftshader_icd.json").exists()), None)
    if found is not None:
        os.environ["VK_ICD_FILENAMES"] = str(found)


def _opened(targets: Sequence[str], opencl: str) -> Iterator[tuple[str, str, Device, Callable[[str, Device], _Pair]]]:
    """Yield target, name of the peer, device, and the function that makes a pair."""
    if "xla" in targets:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from polyhal_xla.backend import XlaBackend

        yield "xla", "JAX", Device.opened("xla", XlaBackend("0")), _on_xla
    if "c" in targets:
        for name in opencl.split(",") if opencl else [c.name for c in registry().candidates()]:
            device = Device(name)
            if isinstance(device.backend, NamesDevice):
                yield "c", "Python", device, _in_c
    if "page" in targets:
        yield "page", "Python", Device("wgpu"), _Pages().pair


def measure(pair: _Pair, repetitions: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Time a step and its peer in alternation. Returns seconds per step and their ratio."""
    try:
        competitors = {"ours": lambda: pair.ours.repeat(1), "peer": lambda: pair.peer.repeat(1)}
        times = alternate(competitors, repetitions, min_seconds=_SAMPLE, clock=clock)
    finally:
        pair.ours.close()
        pair.peer.close()
    seconds = {who: [t.median, t.low, t.high] for who, t in times.items()}
    return {"seconds": seconds["ours"], "peer_seconds": seconds["peer"]}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks exported_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results; rows of other targets are kept")
    parser.add_argument("--models", type=lambda t: choices(t, tuple(MODELS)), default=list(MODELS), metavar="NAMES")
    parser.add_argument("--targets", type=lambda t: choices(t, TARGETS), default=list(TARGETS), metavar="NAMES")
    parser.add_argument("--devices", default="", metavar="NAMES", help="OpenCL devices of C; default: all")
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    if "page" in args.targets:
        _use_chromium_driver()
    rows, devices, failed = [], [], 0
    for target, peer, device, make in _opened(args.targets, args.devices):
        devices.append(device)
        for name in args.models:
            row: dict[str, Any] = {"model": name, "what": _made(name).what, "target": target, "device": device.name}
            try:
                pair = make(name, device)
            except (PolyhalError, RuntimeError, TimeoutError) as error:
                rows.append(row | {"reason": str(error)})
                _save(args.json, devices, rows)
                print(f"{name}, {target} on {device}: {error}", flush=True)
                continue
            timed = measure(pair, args.repetitions, time.process_time if target == "xla" else time.perf_counter)
            row |= {"peer": peer, "difference": pair.difference, **timed}
            failed += pair.difference > (0 if target == "c" else _TOLERANCE)
            rows.append(row)
            _save(args.json, devices, rows)
            ours, theirs = row["seconds"][0], row["peer_seconds"][0]
            print(
                f"{name}, {target} on {device}: {ours * 1e3:.2f} ms, {peer} {theirs * 1e3:.2f} ms, ratio "
                f"{ours / theirs:.2f}, difference {pair.difference:.1e}",
                flush=True,
            )
    return int(failed > 0)


def _save(path: Path | None, devices: Sequence[Device], rows: Sequence[dict[str, Any]]) -> None:
    """Write what is measured so far, with the rows and devices of an older file that were not measured again."""
    result = {"benchmark": "exported_steps", **describe_machine(devices), "rows": list(rows)}
    write(path, result if path is None or not path.exists() else _merged(path, result))


def _merged(path: Path, result: dict[str, Any]) -> dict[str, Any]:
    old = json.loads(path.read_text(encoding="utf-8"))
    measured = {(r["model"], r["target"], r["device"]) for r in result["rows"]}
    kept = [r for r in old["rows"] if (r["model"], r["target"], r["device"]) not in measured]
    return {**old, **result, "devices": old["devices"] | result["devices"], "rows": kept + result["rows"]}
