"""Collectives among several devices: time and bus bandwidth, compared with NCCL on as many CUDA devices.

Bus bandwidth is the traffic of each link between devices, independent of their number: of n devices, an all_reduce of S
bytes moves 2 (n - 1) / n S over each link, an all_gather or reduce_scatter of S bytes in all (n - 1) / n S, and a
broadcast S. This is the definition of nccl-tests, so that figures may be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import polyhal
from benchmarks.arguments import choices, make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal.hal import dtypes
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.parallel import Group

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
_DTYPES = ("float32", "bfloat16")
_SIZES = "1MiB,16MiB,256MiB,1GiB"
_CALLS = 4
"""Collectives between two waits."""
_SAMPLE_SECONDS = 0.05


def bus_bytes(kind: str, nbytes: int, size: int) -> float:
    """Return bytes over each link of `size` devices, of a collective of `nbytes` bytes."""
    return {"all_reduce": 2 * (size - 1) / size, "broadcast": 1.0}.get(kind, (size - 1) / size) * nbytes


def polyhal_collective(group: Group, kind: str, dtype: str, nbytes: int) -> Callable[[], None]:
    """Prepare a collective of `nbytes` bytes per send buffer, or for all_gather in all send buffers. Checks its result
    once."""
    elements = nbytes // dtypes.as_dtype(dtype).itemsize // group.size * group.size
    each = elements // group.size if kind == "all_gather" else elements
    values = [polyhal.full((each,), float(i + 1), dtype=dtype, device=d) for i, d in enumerate(group.devices)]
    call: Callable[[], Sequence[polyhal.Tensor]] = {
        "all_reduce": lambda: group.all_reduce(values),
        "all_gather": lambda: group.all_gather(values),
        "reduce_scatter": lambda: group.reduce_scatter(values),
        "broadcast": lambda: group.broadcast(values[0]),
    }[kind]
    expected = {"broadcast": [1.0], "all_gather": list(range(1, group.size + 1))}.get(
        kind, [sum(range(group.size + 1))]
    )
    for result in call():
        assert np.array_equal(result.reshape(len(expected), -1)[:, :7].float().numpy()[:, 0], expected)

    def run() -> None:
        for _ in range(_CALLS):
            call()
        for device in group.devices:
            device.synchronize()

    return run


def nccl_collective(size: int, kind: str, dtype: str, nbytes: int) -> Callable[[], None] | None:
    """Prepare the collective with NCCL, in this process; None without PyTorch, or where CUDA has fewer than `size`
    devices."""
    try:
        import torch
        from torch.cuda import nccl
    except ImportError:
        return None
    if torch.cuda.device_count() < size:
        return None
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    elements = nbytes // kinds[dtype].itemsize // size * size
    part = elements // size
    given, taken = {"all_gather": (part, elements), "reduce_scatter": (elements, part)}.get(kind, (elements, elements))
    inputs = [torch.ones(given, dtype=kinds[dtype], device=f"cuda:{i}") for i in range(size)]
    outputs = [torch.empty(taken, dtype=kinds[dtype], device=f"cuda:{i}") for i in range(size)]
    call: Callable[[], None] = {
        "all_reduce": lambda: nccl.all_reduce(inputs, outputs),
        "all_gather": lambda: nccl.all_gather(inputs, outputs),
        "reduce_scatter": lambda: nccl.reduce_scatter(inputs, outputs),
        "broadcast": lambda: nccl.broadcast(inputs),
    }[kind]

    def run() -> None:
        for _ in range(_CALLS):
            call()
        for i in range(size):
            torch.cuda.synchronize(i)

    return run


def measure(group: Group, kind: str, dtype: str, nbytes: int, repetitions: int) -> dict[str, Any]:
    """Measure one collective of one size and print the results. Returns a row with seconds."""
    competitors = {"Polyhal": polyhal_collective(group, kind, dtype, nbytes)}
    if (theirs := nccl_collective(group.size, kind, dtype, nbytes)) is not None:
        competitors["NCCL"] = theirs
    row: dict[str, Any] = {
        "kind": kind,
        "dtype": dtype,
        "nbytes": nbytes,
        "size": group.size,
        "seconds": {},
        "bus_bytes": bus_bytes(kind, nbytes, group.size),
    }
    for who, t in alternate(competitors, repetitions, min_seconds=_SAMPLE_SECONDS).items():
        row["seconds"][who] = [x / _CALLS for x in (t.median, t.low, t.high)]
        seconds = row["seconds"][who][0]
        print(
            f"{group.size} x {group.devices[0].name:<14} {kind:<14} {dtype:<8} {nbytes / 2**20:>6.0f} MiB  {who:<8} "
            f"{seconds * 1e3:10.3f} ms  {row['bus_bytes'] / seconds / 1e9:8.2f} GB/s",
            flush=True,
        )
    return row


def _sizes(text: str) -> list[int]:
    """Return an argparse type: comma-separated sizes such as 16MiB."""
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = [re.fullmatch(r"(\d+)(KiB|MiB|GiB)", size) for size in text.split(",")]
    return [int(m[1]) * units[m[2]] if m is not None else int("") for m in found]


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("collectives", __doc__, devices="opencl:pocl/2")
    parser.add_argument("--kinds", type=partial(choices, known=KINDS), default=["all_reduce"], help=", ".join(KINDS))
    parser.add_argument("--dtypes", type=partial(choices, known=_DTYPES), default=list(_DTYPES))
    parser.add_argument("--sizes", type=_sizes, default=_SIZES, help=f"comma-separated; default: {_SIZES}")
    parser.add_argument("--repetitions", type=int, default=15)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    if len(devices) < 2:
        print(f"skipped: {args.devices} names one device; expected several")
    groups = [Group(devices[:n]) for n in (2, 4, 8, 16) if n <= len(devices)]
    result: dict[str, Any] = {"benchmark": "collectives", **describe_machine(devices), "rows": []}
    for group in groups:
        for kind in args.kinds:
            for dtype in args.dtypes:
                for nbytes in args.sizes:
                    result["rows"].append(measure(group, kind, dtype, nbytes, args.repetitions))
                    for device in group.devices:
                        device.empty_cache()
                    write(args.json, result)  # after every row, so that an interrupted run keeps its results
    return 0
