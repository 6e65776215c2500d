"""The same ops on several devices and in PyTorch, in one run: bytes and operations per second, and ratios.

python -m benchmarks.kernels [--devices wgpu,opencl:pocl] [--size cpu|gpu] [--only matmul] [--clock wall|device] [--json FILE]

Every call works on the same random data. A sample is a loop of calls, long enough for the clock; competitors take turns,
so that a slow spell of the machine hits all alike. The wall clock counts until the device is done; `--clock device` adds
up what the device's own timestamps say of its kernels, without the time between them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import polyhal
from benchmarks.machine import describe
from benchmarks.measure import Timing, summarize
from polyhal import Device
from polyhal.hal.registry import registry
from polyhal.nn import functional as F

_SAMPLE_SECONDS = 0.01
_MOST_CALLS = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One op on given shapes; float32 unless `integers` bounds an int64 input. `nbytes` and `flops` are per call."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    torchs: Callable[[Any], Callable[..., Any]]
    """From the module torch to the same function in PyTorch."""
    nbytes: int = 0
    flops: int = 0
    integers: tuple[tuple[int, int], ...] = ()
    """(position, bound) of inputs that are indices."""

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        bounds = dict(self.integers)
        return [
            rng.integers(0, bounds[i], s) if i in bounds else rng.standard_normal(s, dtype=np.float32)
            for i, s in enumerate(self.shapes)
        ]

    def rate(self, seconds: float) -> str:
        if self.flops:
            return f"{self.flops / seconds / 1e9:.0f} GFLOP/s"
        return f"{self.nbytes / seconds / 1e9:.1f} GB/s"


def cases(size: str) -> list[Case]:
    """The cases for a processor ("cpu") or a discrete GPU ("gpu")."""
    large = size == "gpu"
    n, side = (2**26, 8192) if large else (2**22, 1024)
    products = (1024, 4096, 8192) if large else (256, 1024)
    batch, heads, context, width = (64, 6, 256, 64) if large else (8, 4, 128, 32)
    images, channels, pixels = (32, 64, 56) if large else (4, 32, 28)
    line, square = 4 * n, 4 * side * side
    out = [
        Case("add", ((n,), (n,)), lambda a, b: a + b, lambda t: lambda a, b: a + b, 3 * line),
        Case("exp", ((n,),), lambda a: a.exp(), lambda t: lambda a: a.exp(), 2 * line),
        Case("gelu", ((n,),), F.gelu, lambda t: t.nn.functional.gelu, 2 * line),
        Case("greater", ((n,),), lambda a: a > 0.5, lambda t: lambda a: a > 0.5, line + n),
        Case("add a row", ((side, side), (side,)), lambda a, b: a + b, lambda t: lambda a, b: a + b, 2 * square),
        Case(
            "transpose", ((side, side),), lambda a: a.T.contiguous(), lambda t: lambda a: a.t().contiguous(), 2 * square
        ),
        Case("sum of all", ((n,),), lambda a: a.sum(), lambda t: lambda a: a.sum(), line),
        Case("sum of rows", ((side, side),), lambda a: a.sum(axis=1), lambda t: lambda a: a.sum(1), square),
        Case("sum of columns", ((side, side),), lambda a: a.sum(axis=0), lambda t: lambda a: a.sum(0), square),
        Case("argmax of rows", ((side, side),), lambda a: a.argmax(axis=1), lambda t: lambda a: a.argmax(1), square),
        Case("softmax", ((side, side),), lambda a: F.softmax(a, -1), lambda t: lambda a: a.softmax(-1), 2 * square),
        Case(
            "layer norm",
            ((side, side), (side,), (side,)),
            lambda a, w, b: F.layer_norm(a, (side,), w, b),
            lambda t: lambda a, w, b: t.nn.functional.layer_norm(a, (side,), w, b),
            2 * square,
        ),
        Case(
            "cross entropy",
            ((side, side), (side,)),
            F.cross_entropy,
            lambda t: t.nn.functional.cross_entropy,
            square,
            integers=((1, side),),
        ),
        Case(
            "embedding",
            ((side, 512), (8 * side,)),
            lambda w, i: F.embedding(i, w),
            lambda t: lambda w, i: t.nn.functional.embedding(i, w),
            2 * 4 * 512 * 8 * side,
            integers=((1, side),),
        ),
        Case(
            "attention",
            ((batch, heads, context, width),) * 3,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            lambda t: lambda q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            flops=2 * batch * heads * context * context * width,
        ),
        Case(
            "convolution 3x3",
            ((images, channels, pixels, pixels), (channels, channels, 3, 3)),
            lambda x, w: F.conv2d(x, w, padding=1),
            lambda t: lambda x, w: t.nn.functional.conv2d(x, w, padding=1),
            flops=2 * images * channels * channels * 9 * pixels * pixels,
        ),
        Case("matrix by vector", ((side, side), (side,)), lambda a, b: a @ b, lambda t: lambda a, b: a @ b, square),
    ]
    for m in products:
        out.append(
            Case(f"matmul {m}", ((m, m), (m, m)), lambda a, b: a @ b, lambda t: lambda a, b: a @ b, flops=2 * m**3)
        )
    out.append(
        Case(
            "matmul at bt",
            ((products[-2],) * 2,) * 2,
            lambda a, b: a.T @ b.T,
            lambda t: lambda a, b: a.t() @ b.t(),
            flops=2 * products[-2] ** 3,
        )
    )
    return out


class _Ours:
    """A case on one of our devices."""

    def __init__(self, case: Case, device: Device) -> None:
        self._case, self._device = case, device
        self._tensors = [polyhal.tensor(a, device=device) for a in case.arrays()]

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self._case.ours(*self._tensors)

    def wall(self, calls: int) -> float:
        begun = time.perf_counter()
        self.run(calls)
        self._device.synchronize()
        return (time.perf_counter() - begun) / calls

    def device(self, calls: int) -> float:
        backend: Any = self._device.backend
        backend.start_profiling()
        self.run(calls)
        return sum(end - start for _, start, end in backend.stop_profiling()) / 1e9 / calls


class _Torchs:
    """A case in PyTorch, on the CPU or on a CUDA device."""

    def __init__(self, case: Case, place: str) -> None:
        import torch

        self._torch, self._cuda = torch, place == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is float32
        self._function = case.torchs(torch)
        self._tensors = [torch.from_numpy(a).to(place) for a in case.arrays()]

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self._function(*self._tensors)

    def wall(self, calls: int) -> float:
        begun = time.perf_counter()
        self.run(calls)
        if self._cuda:
            self._torch.cuda.synchronize()
        return (time.perf_counter() - begun) / calls

    def device(self, calls: int) -> float:
        """The time between events around all calls, which the device works through without a pause."""
        if not self._cuda:
            return self.wall(calls)
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        self.run(calls)
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / calls


def compare(
    case: Case, devices: Sequence[Device], places: Sequence[str], repetitions: int, clock: str
) -> dict[str, Timing]:
    """Seconds per call of each device, and of PyTorch on each of `places`."""
    competitors: dict[str, Any] = {d.name: _Ours(case, d) for d in devices}
    competitors |= {f"torch:{p}": _Torchs(case, p) for p in places}
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    calls = {}
    for name, who in competitors.items():
        who.wall(1)  # builds what has to be built
        calls[name] = max(1, min(_MOST_CALLS, math.ceil(_SAMPLE_SECONDS / max(who.wall(1), 1e-6))))
    for _ in range(repetitions):
        for name, who in competitors.items():
            samples[name].append(getattr(who, clock)(calls[name]))
    return {name: summarize(s) for name, s in samples.items()}


def _places(size: str) -> list[str]:
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to compare with")
        return []
    return ["cuda" if size == "gpu" and torch.cuda.is_available() else "cpu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--size", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--clock", choices=("wall", "device"), default="wall")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [Device(n) for n in names]
    places = _places(args.size)
    rows: list[dict[str, Any]] = []
    for case in cases(args.size):
        if args.only not in case.name:
            continue
        timings = compare(case, devices, places, args.repetitions, args.clock)
        print(f"{case.name:<18} " + "   ".join(f"{n} {case.rate(t.median)}" for n, t in timings.items()), flush=True)
        rows.append({
            "case": case.name, "shapes": case.shapes, "nbytes": case.nbytes, "flops": case.flops,
            "seconds": {n: [t.median, t.low, t.high] for n, t in timings.items()},
        })  # fmt: skip
    for other in names[1:]:
        first, second = Device(names[0]).name, Device(other).name
        ratios = [r["seconds"][first][0] / r["seconds"][second][0] for r in rows]
        print(f"median over the cases: {first} takes {statistics.median(ratios):.2f} times as long as {second}")
    if args.json:
        found = {"benchmark": "kernels", "clock": args.clock, **describe(devices), "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
