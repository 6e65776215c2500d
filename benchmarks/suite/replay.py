"""Host time per replayed launch: a captured training step against a bare loop of the driver's own calls.

The step trains a deep narrow network with dropout, gradient clipping, AdamW and a learning rate schedule, so nearly all of
its time is spent on the host, and some scalars change with every replay. The bare loops make the calls that enqueue the
same kernels with the same arguments, through cffi and through pyopencl; on wgpu they encode and submit the same dispatches.
The threads of CPU drivers compete with the host for cores, so the time above the bare calls is measured with stubs in place
of the driver's functions. Exits with code 1 if it exceeds the limit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate, per_call
from polyhal import Device, Tensor, jit, manual_seed, nn, optim

LIMIT = 1.0
"""Microseconds per launch above the driver's own enqueue."""
_WIDTH, _LAYERS, _BATCH = 16, 16, 8


def make_step(device: Device) -> Callable[[], Tensor]:
    """Return one training step of the small network, as a function without arguments."""
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


def capture(device: Device, step: Callable[[], Tensor]) -> tuple[Callable[[], Any], list[Any]]:
    """Return the captured step, and the command buffers that the backend recorded for it."""
    recordings: list[Any] = []
    backend: Any = device.backend
    if hasattr(backend.runtime, "prefers_khr_buffers"):
        backend.runtime.prefers_khr_buffers = False  # a buffer of the driver would replay all launches with one call
    record = backend.record
    backend.record = lambda calls: recordings.append(record(calls)) or recordings[-1]
    try:
        captured: Any = jit(step)
        for _ in range(4):
            captured()
    finally:
        backend.record = record
    return captured, recordings[: len(recordings) // max(1, len(captured.graphs))]


def bare_loops(device: Device, recordings: list[Any]) -> dict[str, Callable[[], None]]:
    """Return loops that only enqueue the recorded kernels, the one with the least overhead first."""
    backend: Any = device.backend
    if device.name.startswith("wgpu"):

        def encode() -> None:
            for recording in recordings:
                backend.runtime.encoder.dispatch_all(recording.dispatches)
                backend.runtime.encoder.flush()

        return {"bare encoding": encode}
    import pyopencl as cl

    from polyhal.backends.opencl.driver import ffi, pointer

    launches = [b for recording in recordings for b in recording.bound]
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
    """Measure one device and print the results. Returns a row with microseconds of the host per launch."""
    step = make_step(device)
    captured, recordings = capture(device, step)
    launches = sum(len(r.launches) for r in recordings)
    loops = bare_loops(device, recordings)

    competitors: dict[str, Callable[[], object]] = {"captured step": captured, **loops, "eager step": step}
    timings = alternate(competitors, repetitions, settle=device.synchronize)
    print(f"\n{device.info.name} ({device.name}), {launches} launches per step; microseconds of the host per launch")
    row: dict[str, Any] = {"device": device.name, "launches": launches, "who": {}}
    for name, timing in timings.items():
        print(f"  {name:<22} {timing.text(1e6 / launches, 'us')}")
        row["who"][name] = [t * 1e6 / launches for t in (timing.median, timing.low, timing.high)]
    barest = next(iter(loops.values()))
    with _stub_driver(device):
        above = (per_call(captured, 50).median - per_call(barest, 50).median) / launches * 1e6
    print(f"  above the bare calls   {above:.2f} us   limit {LIMIT}", flush=True)
    return row | {"above": above}


@contextmanager
def _stub_driver(device: Device) -> Iterator[None]:
    """Replace the driver's functions, or the encoding of wgpu, by functions that do nothing."""
    runtime: Any = device.backend.runtime  # type: ignore[attr-defined]
    if hasattr(runtime, "driver"):
        owner, stubs = runtime.driver, {"enqueue": lambda *args: 0}
    else:
        owner, stubs = runtime.encoder, dict.fromkeys(("dispatch_all", "flush"), lambda *args: None)
    originals = {name: getattr(owner, name) for name in stubs}
    for name, stub in stubs.items():
        setattr(owner, name, stub)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(owner, name, function)


def main(arguments: Sequence[str]) -> int:
    args = make_parser("replay", __doc__).parse_args(arguments)
    gc.disable()  # pauses of the garbage collector belong to the program, not to the launch
    devices = open_devices(args.devices, lambda device: hasattr(device.backend, "record"))
    rows = [measure(d) for d in devices]
    write(args.json, {"benchmark": "replay", **describe_machine(devices), "rows": rows})
    return 0 if all(row["above"] <= LIMIT for row in rows) else 1
