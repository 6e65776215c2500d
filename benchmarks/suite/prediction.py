"""Training steps in virtual time on a simulated device, compared with the measured times of the real one.

The same captured steps run on the real device, and on the simulated one without computing anything. Its profile is made first,
by the micro-benchmarks of `polyhal sim calibrate`, which contain no part of the steps, or is a named one. The cores of
a virtual machine are at times twice as slow as at others. Therefore a product of matrices alternates with the steps,
and the prediction is divided by the speed at which this product runs, relative to the profile's. With `--measured` the
real times come from a result file of the benchmark `training_step` instead, for devices that are not available.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polyhal
from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from benchmarks.training_workloads import PRECISIONS, WORKLOADS, TrainingWorkload
from polyhal import Device
from polyhal.calibration import measure as measure_device
from polyhal.calibration import profile_text
from polyhal.hal.capabilities import DeviceType

_STEPS_BEFORE = 4
"""A captured step is recorded twice before it is only replayed."""
_SAMPLE_SECONDS = 0.05
_MEASURED = "measured"
"""Sentinel: the profile that is measured on a device."""
_PRODUCT = {DeviceType.GPU: 4096}
"""Rows and columns of the product that measures the machine's speed, 512 on other devices: it must not be bound by the
host."""


class MeasuredStep(NamedTuple):
    """Milliseconds of a step on a real device: the median and the quartiles."""

    model: str
    device: str
    precision: str
    ms: float
    low_ms: float
    high_ms: float
    product_ms: float = 0.0
    """A product of matrices in the same minute; 0 if it was not measured."""


def predict(workload: TrainingWorkload, simulated: Device, precision: str) -> float:
    """Return virtual milliseconds of one captured step."""
    return _virtual_ms(simulated, workload.polyhal_step(simulated, precision, captured=True), _STEPS_BEFORE)


def predict_product(simulated: Device) -> float:
    """Return the virtual milliseconds of the product that measures the machine's speed."""
    return _virtual_ms(simulated, _product(simulated), 1)


def _virtual_ms(simulated: Device, run: Callable[[], object], before: int) -> float:
    """Return virtual milliseconds of a run after `before` others."""
    backend: Any = simulated.backend
    for _ in range(before):
        run()
    begin = backend.virtual_time
    run()
    milliseconds: float = (backend.virtual_time - begin) / 1e6
    return milliseconds


def _product(device: Device) -> Callable[[], object]:
    width = _PRODUCT.get(device.type, 512)
    a, b = (polyhal.ones((width, width), device=device) for _ in range(2))

    def run() -> None:
        a @ b
        device.synchronize()

    return run


def measure(
    models: Sequence[str],
    devices: Sequence[Device],
    precisions: Sequence[str],
    repetitions: int,
    clock: Callable[[], float],
) -> Iterator[MeasuredStep]:
    """Time the steps on real devices, which alternate."""
    for model in models:
        for precision in precisions:
            steps = {d.name: WORKLOADS[model].polyhal_step(d, precision, captured=True) for d in devices}
            products = {f"{d.name} product": _product(d) for d in devices}
            for step in steps.values():
                for _ in range(_STEPS_BEFORE):
                    step()
            times = alternate({**steps, **products}, repetitions, min_seconds=_SAMPLE_SECONDS, clock=clock)
            for name in steps:
                t, product = times[name], times[f"{name} product"]
                quartiles = (t.median * 1e3, t.low * 1e3, t.high * 1e3)
                yield MeasuredStep(model, name, precision, *quartiles, product.median * 1e3)
            steps.clear()
            gc.collect()


def read_measured(path: Path, models: Sequence[str], precisions: Sequence[str]) -> Iterator[MeasuredStep]:
    """Take the captured steps out of a result file of `training_step`."""
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        captured = row["who"].get("captured")
        if captured and row["model"] in models and row["precision"] in precisions:
            times = (captured[key] for key in ("ms", "low_ms", "high_ms"))
            yield MeasuredStep(row["model"], row["device"], row["precision"], *times)


class Predictions:
    """Predicts steps on the simulated counterparts of real devices."""

    def __init__(self, simulated: Callable[[str], Device]) -> None:
        """`simulated` opens the simulated device for the name of a real one."""
        self._open = functools.cache(simulated)
        self._step = functools.cache(lambda name, model, how: predict(WORKLOADS[model], self._open(name), how))
        self._product = functools.cache(lambda name: predict_product(self._open(name)))

    def speed(self, step: MeasuredStep) -> float:
        """Return the machine's speed when a step was measured, relative to the profile's; 1 if it was not measured."""
        return self._product(step.device) / step.product_ms if step.product_ms else 1.0

    def milliseconds(self, step: MeasuredStep) -> float:
        """Return the duration of a step at that speed."""
        return self._step(step.device, step.model, step.precision) / self.speed(step)


def compare(steps: Iterator[MeasuredStep], predictions: Predictions, profile: str) -> Iterator[dict[str, Any]]:
    """Predict each step, print the comparison, and return it as a row."""
    for step in steps:
        ms, speed = predictions.milliseconds(step), predictions.speed(step)
        print(
            f"{step.device:<10} {step.model:<10} {step.precision:<9} measured {step.ms:9.3f} ms   "
            f"predicted {ms:9.3f} ms   {ms / step.ms:.2f}   speed {speed:.2f}",
            flush=True,
        )
        yield {
            **step._asdict(),
            "what": WORKLOADS[step.model].what,
            "predicted_ms": ms,
            "speed": speed,
            "profile": profile,
        }


def calibrated(device: Device, folder: Path, clock: Callable[[], float]) -> str:
    """Measure a profile of a device, and return the path of its file."""
    print(f"{device.name:<10} is calibrated", flush=True)
    path = folder / f"{device.name.replace(':', '_')}.toml"
    path.write_text(profile_text(measure_device(device, clock=clock)), encoding="utf-8")
    return str(path)


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("prediction", __doc__, devices="opencl:intel,opencl:pocl")
    models = partial(choices, known=tuple(WORKLOADS))
    parser.add_argument("--models", type=models, default=["mlp", "cnn", "gpt", "resnet"])
    parser.add_argument("--precisions", type=partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--repetitions", type=int, default=15)
    profile_help = (
        "profile of the simulated device: a name, a file, or `measured`, the default, for one of each device's own"
    )
    parser.add_argument("--profile", default=_MEASURED, help=profile_help)
    parser.add_argument("--measured", type=Path, metavar="FILE", help="a result file of training_step")
    parser.add_argument(
        "--one-core", action="store_true", help="run on one core and measure the processor's time, for machines in use"
    )
    args = parser.parse_args(arguments)
    clock = time.process_time if args.one_core else time.perf_counter
    if args.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    if args.measured is not None and args.profile == _MEASURED:
        parser.error("--measured needs a --profile by name: its devices are not here to be measured")
    with tempfile.TemporaryDirectory() as folder:
        profiles: dict[str, str] = {}
        if args.measured is not None:
            source = json.loads(args.measured.read_text(encoding="utf-8"))
            facts = {key: source[key] for key in ("date", "processor", "cores", "devices", "place") if key in source}
            steps = read_measured(args.measured, args.models, args.precisions)
        else:
            devices = open_devices(args.devices)
            facts = describe_machine(devices)
            if args.profile == _MEASURED:
                profiles = {d.name: calibrated(d, Path(folder), clock) for d in devices}
            steps = measure(args.models, devices, args.precisions, args.repetitions, clock)
        predictions = Predictions(lambda name: Device(f"sim:{profiles.get(name, args.profile)},compute=off"))
        result: dict[str, Any] = {"benchmark": "prediction", **facts, "one_core": args.one_core, "rows": []}
        for row in compare(steps, predictions, args.profile):
            result["rows"].append(row)
            write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
