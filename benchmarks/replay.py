"""What a replayed launch costs the host: a captured training step against a bare loop of the driver's own calls.

python -m benchmarks.replay [--devices opencl:0,opencl:1,wgpu:0] [--json FILE]

The step is that of a deep narrow network with dropout, clipping, AdamW and a schedule, so that nearly all its time is the
host's and numbers change at each run. The bare loops make the calls that enqueue the same kernels with the same arguments,
through cffi and through pyopencl; on wgpu they encode and submit the same dispatches. As the threads of CPU drivers take the
host's cores, what is above the bare calls is measured with calls that do nothing in place of the driver's.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe, write
from benchmarks.measure import alternate, per_call
from polyhal import Device, Tensor, jit, manual_seed, nn, optim
from polyhal.hal.discovery.registry import registry

LIMIT = 1.0
"""Microseconds per launch above the driver's own enqueue."""
_WIDTH, _LAYERS, _BATCH = 16, 16, 8


def step_of(device: Device) -> Callable[[], Tensor]:
    """One training step of the small network, as a function without arguments."""
    manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(_LAYERS):
        layers += [nn.Linear(_WIDTH, _WIDTH, device=device), nn.GELU(), nn.Dropout(0.1)]
    model = nn.Sequential(*layers, nn.Linear(_WIDTH, 4, device=device))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    schedule = optim.LambdaLR(optimizer, lambda k: 1 / (1 + k))
    rng = np.random.default_rng(0)
    x = Tensor(rng.standard_normal((_BATCH, _WIDTH)).astype(np.float32), device=device)
    y = Tensor(rng.integers(0, 4, _BATCH), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    return step


def recorded(device: Device, step: Callable[[], Tensor]) -> tuple[Callable[[], Any], list[Any]]:
    """The captured step, and what the backend recorded of it."""
    found: list[Any] = []
    backend: Any = device.backend
    if hasattr(backend.runtime, "prefers_buffers"):
        backend.runtime.prefers_buffers = False  # which would be one call for all
    record = backend.record
    backend.record = lambda calls: found.append(record(calls)) or found[-1]
    try:
        captured: Any = jit(step)
        for _ in range(4):
            captured()
    finally:
        backend.record = record
    return captured, found[: len(found) // max(1, len(captured.graphs))]


def bare(device: Device, found: list[Any]) -> dict[str, Callable[[], None]]:
    """Loops that only enqueue what was recorded, the barest first."""
    backend: Any = device.backend
    if device.name.startswith("wgpu"):

        def encode() -> None:
            for recording in found:
                backend.runtime.recorder.dispatch_all(recording.dispatches)
                backend.runtime.recorder.flush()

        return {"bare encoding": encode}
    import pyopencl as cl

    from polyhal.backends.opencl.driver import ffi, pointer

    launches = [b for recording in found for b in recording.bound]
    driver, null, queue = backend.runtime.driver, ffi.NULL, backend.runtime.queue
    calls = [
        (
            pointer(queue),
            pointer(b.kernel),
            len(b.items),
            null,
            ffi.new("size_t[]", b.items),
            ffi.new("size_t[]", b.group),
        )
        for b in launches
    ]

    def through_cffi() -> None:
        enqueue = driver.enqueue
        for call in calls:
            if enqueue(*call, 0, null, null):
                raise RuntimeError("the driver refused a launch")

    def through_pyopencl() -> None:
        for b in launches:
            cl.enqueue_nd_range_kernel(queue, b.kernel, b.items, b.group)

    return {"bare calls, cffi": through_cffi, "bare calls, pyopencl": through_pyopencl}


def measure(device: Device, repetitions: int = 40) -> dict[str, Any]:
    """One row of results, in microseconds of the host per launch, printed as well."""
    step = step_of(device)
    captured, found = recorded(device, step)
    launches = sum(len(r.launches) for r in found)
    loops = bare(device, found)

    competitors: dict[str, Callable[[], object]] = {"captured step": captured, **loops, "eager step": step}
    times = alternate(competitors, repetitions, settle=device.synchronize)
    print(f"\n{device.info.name} ({device.name}), {launches} launches per step; microseconds of the host per launch")
    row: dict[str, Any] = {"device": device.name, "launches": launches, "who": {}}
    for name, timing in times.items():
        print(f"  {name:<22} {timing.text(1e6 / launches, 'us')}")
        row["who"][name] = [t * 1e6 / launches for t in (timing.median, timing.low, timing.high)]
    first = next(iter(loops))
    with _idle(device):
        above = (per_call(captured, 50).median - per_call(loops[first], 50).median) / launches * 1e6
    print(f"  above the bare calls   {above:.2f} us   limit {LIMIT}")
    return row | {"above": above}


@contextmanager
def _idle(device: Device) -> Iterator[None]:
    """Have the driver's calls cost nothing, those of wgpu's encoding likewise."""
    runtime: Any = device.backend.runtime  # type: ignore[attr-defined]
    if hasattr(runtime, "driver"):
        owner, stubs = runtime.driver, {"enqueue": lambda *args: 0}
    else:
        owner, stubs = runtime.recorder, dict.fromkeys(("dispatch_all", "flush"), lambda *args: None)
    kept = {name: getattr(owner, name) for name in stubs}
    for name, stub in stubs.items():
        setattr(owner, name, stub)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(owner, name, function)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="", help="comma-separated names; all devices that record by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    gc.disable()  # the collector's pauses are the program's, not the launch's
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [d for d in map(Device, names) if hasattr(d.backend, "record")]
    rows = [measure(d) for d in devices]
    write(args.json, {"benchmark": "replay", **describe(devices), "rows": rows})
    return 0 if all(row["above"] <= LIMIT for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
