"""Overhead of the framework per op: `a + b` on the null backend, and eager time per op on every device.

With PyTorch installed, also `a + b` of PyTorch's tensors on its device "polyhal", on the null backend too. Exits with code 1
if `a + b` on the null backend takes longer than the design allows.
"""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Sequence
from typing import Any

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import TimingSummary, per_call
from polyhal import Device, Tensor, get_default_device, set_default_device, zeros

LIMIT, LIMIT_WITH_TAPE, LIMIT_OF_PYTORCH = 3.0, 4.0, 10.0
"""Microseconds that the design allows for `a + b`."""
_OPS = 1000
"""Eager ops per wait."""


def _pair(device: Device, size: int) -> tuple[Tensor, Tensor]:
    return zeros((size,), device=device), zeros((size,), device=device)


def framework() -> tuple[TimingSummary, TimingSummary]:
    """Measure `a + b` on the null backend, without and with the autograd tape."""
    a, b = _pair(Device("null"), 16)
    plain = per_call(lambda: a + b, 5_000)
    a.requires_grad_()
    taped = per_call(lambda: a + b, 5_000)
    print("framework time of a + b (null backend: median [quartiles])")
    print(f"  without tape  {plain.text(1e6, 'us')}   limit {LIMIT}")
    print(f"  with tape     {taped.text(1e6, 'us')}   limit {LIMIT_WITH_TAPE}")
    return plain, taped


def pytorch() -> TimingSummary | None:
    """Measure `a + b` of PyTorch's tensors on the null backend; None without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    import polyhal.torch  # noqa: F401  (gives PyTorch the device)

    previous = get_default_device()
    set_default_device(Device("null"))
    a, b = torch.zeros(16, device="polyhal"), torch.zeros(16, device="polyhal")
    timing = per_call(lambda: a + b, 5_000)
    set_default_device(previous)
    print(f"  of PyTorch    {timing.text(1e6, 'us')}   limit {LIMIT_OF_PYTORCH}")
    return timing


def eager(device: Device) -> TimingSummary:
    """Measure an eager op on small tensors, with one wait per 1,000 ops. Returns seconds per 1,000 ops."""
    a, b = _pair(device, 10_000)

    def loop() -> None:
        for _ in range(_OPS):
            a + b
        device.synchronize()

    return per_call(loop, 1, 20)


def main(arguments: Sequence[str]) -> int:
    args = make_parser("overhead", __doc__).parse_args(arguments)
    devices = open_devices(args.devices)
    gc.disable()  # pauses of the garbage collector belong to the program, not to the op
    plain, taped = framework()
    rows: list[dict[str, Any]] = [
        {"what": "framework", "us": _us(plain)},
        {"what": "framework with tape", "us": _us(taped)},
    ]
    of_pytorch = pytorch()
    if of_pytorch:
        rows.append({"what": "PyTorch's tensors", "us": _us(of_pytorch)})
    print("\neager a + b of 10,000 floats, one wait per 1,000 ops")
    for device in devices:
        timing = eager(device)
        print(f"  {device.name:<12} {timing.text(1e3, 'us per op')}   {device.info.name}", flush=True)
        rows.append({"what": device.name, "us": [t * 1e6 / _OPS for t in (timing.median, timing.low, timing.high)]})
    write(args.json, {"benchmark": "overhead", **describe_machine(devices), "rows": rows})
    limits = {LIMIT: plain, LIMIT_WITH_TAPE: taped} | ({LIMIT_OF_PYTORCH: of_pytorch} if of_pytorch else {})
    return int(any(timing.median * 1e6 > limit for limit, timing in limits.items()))


def _us(timing: TimingSummary) -> list[float]:
    return [t * 1e6 for t in (timing.median, timing.low, timing.high)]
