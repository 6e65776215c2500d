"""Training steps in virtual time on a simulated device, beside the measured times of the real one.

The same captured steps run on the real device, and on the simulated one without computing anything. The cores of a virtual
machine are at times twice as slow as at others. Therefore a product of matrices alternates with the steps, and the prediction
is divided by the speed at which this product runs, relative to the profile's. With `--measured` the real times come from a
result file of the benchmark `training_step` instead, for devices that are not at hand.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import polyhal
from benchmarks.arguments import choices, make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from benchmarks.training_workloads import PRECISIONS, WORKLOADS, TrainingWorkload, polyhal_step
from polyhal import Device
from polyhal.hal.capabilities import DeviceType

_STEPS_BEFORE = 4
"""A captured step is recorded twice before it is only replayed."""
_SAMPLE_SECONDS = 0.05
_PRODUCT = {DeviceType.GPU: 4096}
"""Rows and columns of the product that tells the machine's speed, 512 on other devices: it must not be bound by the host."""


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
    """Virtual milliseconds of one captured step."""
    return _virtual_ms(simulated, polyhal_step(workload, simulated, precision, captured=True), _STEPS_BEFORE)


def predict_product(simulated: Device) -> float:
    """Virtual milliseconds of the product that tells the machine's speed."""
    return _virtual_ms(simulated, _product(simulated), 1)


def _virtual_ms(simulated: Device, run: Callable[[], object], before: int) -> float:
    """Virtual milliseconds of a run after `before` others."""
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
    models: Sequence[str], devices: Sequence[Device], precisions: Sequence[str], repetitions: int
) -> Iterator[MeasuredStep]:
    """Time the steps on real devices, which alternate."""
    for model in models:
        for precision in precisions:
            steps = {d.name: polyhal_step(WORKLOADS[model], d, precision, captured=True) for d in devices}
            products = {f"{d.name} product": _product(d) for d in devices}
            for step in steps.values():
                for _ in range(_STEPS_BEFORE):
                    step()
            times = alternate({**steps, **products}, repetitions, min_seconds=_SAMPLE_SECONDS)
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


def compare(steps: Iterator[MeasuredStep], simulated: Device) -> Iterator[dict[str, Any]]:
    """Predict each step, print the comparison, and return it as a row."""
    predicted: dict[tuple[str, str], float] = {}
    product = predict_product(simulated)
    for step in steps:
        key = (step.model, step.precision)
        if key not in predicted:
            predicted[key] = predict(WORKLOADS[step.model], simulated, step.precision)
        speed = product / step.product_ms if step.product_ms else 1.0
        ms = predicted[key] / speed
        print(
            f"{step.device:<10} {step.model:<10} {step.precision:<9} measured {step.ms:9.3f} ms   "
            f"predicted {ms:9.3f} ms   {ms / step.ms:.2f}   speed {speed:.2f}",
            flush=True,
        )
        yield {
            **step._asdict(), "what": WORKLOADS[step.model].what, "predicted_ms": ms, "speed": speed,
            "simulated": simulated.name,
        }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("prediction", __doc__, devices="opencl:intel,opencl:pocl")
    models = partial(choices, known=tuple(WORKLOADS))
    parser.add_argument("--models", type=models, default=["mlp", "cnn", "gpt", "resnet"])
    parser.add_argument("--precisions", type=partial(choices, known=PRECISIONS), default=["highest"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--profile", default="cpu_2core", help="profile of the simulated device; default: %(default)s")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="a result file of training_step")
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from what is measured
    simulated = Device(f"sim:{args.profile},compute=off")
    if args.measured is not None:
        source = json.loads(args.measured.read_text(encoding="utf-8"))
        facts = {key: source[key] for key in ("date", "processor", "cores", "devices", "place") if key in source}
        steps = read_measured(args.measured, args.models, args.precisions)
    else:
        devices = open_devices(args.devices)
        facts = describe_machine(devices)
        steps = measure(args.models, devices, args.precisions, args.repetitions)
    result: dict[str, Any] = {"benchmark": "prediction", **facts, "rows": []}
    for row in compare(steps, simulated):
        result["rows"].append(row)
        write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
