"""Guard against slower kernels: a short list of rows, measured beside their peers, against the committed ratios.

A ratio is the time of the fastest peer divided by Polyhal's. It is compared with the ratio of the same row in the committed
results, for a device with the same driver. A row fails if its ratio is lower by more than the spread of both measurements
explains; it is measured a second time before that. Exits with 1 if a row fails.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.op_workloads import workloads
from benchmarks.result_files import describe_machine
from benchmarks.suite.kernels import compare, competitors
from benchmarks.timing import TimingSummary
from polyhal import Device

_EVERYWHERE = ("add", "gelu", "sum of rows", "softmax and gradient", "layer norm and gradients", "matrix by vector")
ROWS = {
    "cpu": (*_EVERYWHERE, "matmul 512", "conv 3x3 and gradients", "attention 4x8x256x64"),
    "gpu": (*_EVERYWHERE, "matmul 4096 highest", "matmul 4096 bfloat16", "conv 3x3 64 high", "attention bfloat16"),
}
"""Names of rows, by size."""
_RESULTS = Path(__file__).parents[1] / "results"
FILES = {"cpu": _RESULTS / "cpu-kernels.json", "gpu": _RESULTS / "h200-kernels.json"}
_LEAST = 0.1
"""Smallest tolerance: ratios of medians vary by so much between runs on a quiet machine."""
_SPREADS = 2.0
"""Spreads that a ratio may differ by."""
_NOISY = 0.4
"""Largest tolerance: beyond it a row says nothing, and the machine should be quieter."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the fastest peer divided by Polyhal's, and its relative spread."""

    value: float
    spread: float


def ratio(seconds: Mapping[str, Sequence[float]], device: str, devices: Sequence[str]) -> Ratio | None:
    """Return the ratio of a device. `seconds` has median and quartiles by competitor; `devices` are Polyhal's.

    None if the device or all peers are missing.
    """
    peers = [s for name, s in seconds.items() if name not in devices]
    if device not in seconds or not peers:
        return None
    own, best = seconds[device], min(peers, key=lambda s: s[0])
    return Ratio(best[0] / own[0], math.hypot(*((s[2] - s[1]) / 2 / s[0] for s in (own, best))))


def tolerance(committed: Ratio, measured: Ratio) -> float:
    """Return by how much a measured ratio may be lower than the committed one, as a part of it."""
    return max(_LEAST, _SPREADS * math.hypot(committed.spread, measured.spread))


def verdict(committed: Ratio, measured: Ratio) -> str:
    """Return `ok`, `SLOWER`, or `too noisy` for a comparison without meaning."""
    allowed = tolerance(committed, measured)
    if measured.value >= committed.value * (1 - min(allowed, _NOISY)):
        return "ok"
    return "too noisy" if allowed > _NOISY else "SLOWER"


def committed_name(result: Mapping[str, Any], device: Device) -> str | None:
    """Return the name under which a committed result has a device with the same driver; None without one."""
    wanted = device.info.driver.split()[:2]
    return next((name for name, d in result["devices"].items() if d["driver"].split()[:2] == wanted), None)


def _as_lists(timings: Mapping[str, TimingSummary]) -> dict[str, list[float]]:
    return {name: [t.median, t.low, t.high] for name, t in timings.items()}


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("guard", __doc__)
    parser.add_argument("--size", choices=tuple(ROWS), default="cpu")
    parser.add_argument("--repetitions", type=int, default=10)
    args = parser.parse_args(arguments)
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # background builds would take cores from the measured programs
    warnings.filterwarnings("ignore", message=".*compiler output.*")  # of programs that other frameworks build
    result = json.loads(FILES[args.size].read_text(encoding="utf-8"))
    rows = {row["name"]: row["seconds"] for row in result["rows"]}
    names = {d: committed_name(result, d) for d in open_devices(args.devices)}
    for device in [d for d, name in names.items() if name is None]:
        print(f"{device.name} is skipped: the committed results have no device with the driver {device.info.driver}")
    devices = [d for d, name in names.items() if name is not None]
    if not devices:
        print("no device has committed results")
        return 2
    if (here := describe_machine(devices)["processor"]) != result["processor"]:
        print(f"the committed results are from another processor, {result['processor']}; this is {here}")
    chosen = competitors(devices, args.size == "gpu")
    own = [d.name for d in devices]
    slower = 0
    known = {w.name: w for w in workloads(args.size)}
    for workload in (known[name] for name in ROWS[args.size]):
        measured = _as_lists(compare(workload, chosen, args.repetitions, result["clock"])[0])
        for device in devices:
            committed = ratio(rows[workload.name], names[device] or "", list(result["devices"]))
            now = ratio(measured, device.name, own)
            if committed is None or now is None:
                print(f"{workload.name:<30} {device.name:<12} not measured")
                continue
            if verdict(committed, now) != "ok":
                again = _as_lists(compare(workload, chosen, 2 * args.repetitions, result["clock"])[0])
                now = ratio(again, device.name, own) or now
            word = verdict(committed, now)
            slower += word == "SLOWER"
            print(
                f"{workload.name:<30} {device.name:<12} {now.value:.2f}x, was {committed.value:.2f}x  {word}",
                flush=True,
            )
    print(f"{slower} rows are slower than committed" if slower else "no row is slower than committed")
    return int(slower > 0)
