"""The process that runs one driver: `python -m polyhal.reports.worker`, with a request as JSON on standard input.

It prints the name of each item (a check, a workload) before it begins and the result afterwards, as lines of JSON, so that the
results survive a crash. Lines that drivers print lack the prefix `MARK`.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from polyhal import Device
from polyhal.devices import describe_error, device_rates, registry
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.testing import (
    ANY,
    Case,
    ResultError,
    RunRecord,
    Scope,
    failed_call,
    isolated,
    one_line,
    run_case,
    select_cases,
    strict,
)
from polyhal.reports import workloads
from polyhal.reports.machine_report import DeviceFacts

MARK = "polyhal-report "
ITEM_LIMIT = 60.0
"""Timeout in seconds of an item, after which the process is ended."""
ROOFLINE = "roofline/float32"
"""The item that measures the rates of a device."""
_KINDS = ("forward", "contract", "gradient", "decomposition", "second_order", "errors")


def main(request: dict[str, Any]) -> None:
    """Carry out a request: `task` is a key of `TASKS`; items in `skip` are left out."""
    TASKS[request["task"]](request)
    _emit("end")


def _emit(event: str, **fields: Any) -> None:
    print(f"\n{MARK}{json.dumps({'event': event, **fields})}", flush=True)


def _begin(item: str, limit: float) -> None:
    """Report the start of an item. A watchdog ends the process at the time limit, even if a driver holds the interpreter."""
    _emit("begin", item=item)
    faulthandler.dump_traceback_later(limit, exit=True)


def _done(event: str, item: str, **fields: Any) -> None:
    faulthandler.cancel_dump_traceback_later()
    _emit(event, item=item, **fields)


def _list(request: dict[str, Any]) -> None:
    """Report the devices of one backend without opening them."""
    known, backend = registry(), request["backend"]
    for candidate in known.probe(backend) if backend in known.backends else []:
        _emit("listed", name=candidate.name, facts=asdict(_facts(candidate.info)))
    for failure in known.failures:
        if "POLYHAL_DISABLE" not in failure.reason:
            _emit("failure", problem=f"{failure.source}: {failure.reason}")


def _facts(info: DeviceInfo, device: Device | None = None) -> DeviceFacts:
    known: dict[str, Any] = device.capabilities.to_json() if device is not None else {}
    return DeviceFacts(
        info.name,
        info.type.value,
        info.vendor,
        info.driver,
        info.memory,
        known.get("features", {}),
        known.get("limits", {}),
        tuple(known.get("storage", ())),
        tuple(known.get("compute", ())),
        tuple(known.get("quirks", ())),
    )


def _check(request: dict[str, Any]) -> None:
    """Report properties of a device, then run checks until the time is over, first one of each op."""
    device = isolated(Device(request["device"]))
    _emit("facts", facts=asdict(_facts(device.info, device)))
    cases = spread(select_cases(device, Scope(small=True), request.get("only", "*"), RunRecord()))
    _emit("selected", count=len(cases))
    end = time.monotonic() + request["seconds"]
    with strict():
        for case in cases:
            if case.id in request["skip"]:
                continue
            if time.monotonic() > end:
                break
            _begin(case.id, request["limit"])
            outcome = run_case(case)
            error = outcome.error
            problem, call = ("", "") if error is None else (_problem(error), failed_call(error))
            _done("checked", case.id, op=case.op, dtype=case.dtype, problem=problem, call=call, lost=outcome.lost)
            if outcome.lost:
                break


def _problem(error: Exception) -> str:
    """Return the full error text: it is scrubbed first and truncated later, or half of a user name might survive."""
    if isinstance(error, ResultError):
        return one_line(error)
    return error.gist if isinstance(error, KernelBuildError) else f"{type(error).__name__}: {error}"


def spread(cases: list[Case]) -> list[Case]:
    """Order checks: the first of each op, those of the contract, then the second of each op; float32 before other dtypes.

    Ops are in a fixed pseudorandom order, so that the first few belong to all families.
    """
    rows: dict[str, list[Case]] = {}
    for case in cases:
        rows.setdefault(case.op, []).append(case)
    for row in rows.values():
        row.sort(key=lambda c: (c.dtype not in ("float32", ANY), _KINDS.index(c.kind)))
    contract = rows.pop("", [])
    turns = [list(filter(None, turn)) for turn in zip_longest(*(rows[op] for op in sorted(rows, key=_shuffled)))]
    return [c for turn in (*turns[:1], contract, *turns[1:]) for c in turn]


def _shuffled(name: str) -> int:
    return zlib.crc32(name.encode())


def _benchmark(request: dict[str, Any]) -> None:
    """Run all workloads on a device of Polyhal; first measure its roofline if the request has `roofline`."""
    device = Device(request["device"])
    _emit("opened", facts=asdict(_facts(device.info, device)))
    if request.get("roofline") and ROOFLINE not in request["skip"]:
        _begin(ROOFLINE, request["limit"])
        rates = device_rates(device)
        limits = {
            w.name: w.roofline(rates.flops, rates.bandwidth) for w in workloads.workloads(workloads.size_for(device))
        }
        _done("rates", ROOFLINE, flops=rates.flops, bandwidth=rates.bandwidth, roofline=limits)
    _measure(request, workloads.polyhal_framework(device), workloads.size_for(device))


def _baseline(request: dict[str, Any]) -> None:
    """Run all workloads in PyTorch, if it is installed."""
    try:
        name, device, framework = workloads.pytorch_framework()
    except ImportError:
        return
    _emit("baseline", name=name, device=device)
    _emit("opened", name=name, facts={"device": device, "driver": ""})
    _measure(request, framework, workloads.SMALL if device == "cpu" else workloads.LARGE)


def _measure(request: dict[str, Any], framework: workloads.Framework, size: workloads.ReportSize) -> None:
    wanted = [w for w in workloads.workloads(size) if w.name not in request["skip"]]
    end = time.monotonic() + request["seconds"]
    for left, workload in zip(range(len(wanted), 0, -1), wanted, strict=True):
        if time.monotonic() > end:
            _emit("figure", item=workload.name, problem="no time was left")
            continue
        _begin(workload.name, request["limit"])
        try:
            figure = workloads.measure(workload, framework, max(end - time.monotonic(), 0.0) / left)
        except Exception as error:  # drivers raise arbitrary errors, which are reported
            _done("figure", workload.name, problem=describe_error(error))
        else:
            _done("figure", workload.name, **asdict(figure))


TASKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "list": _list,
    "check": _check,
    "benchmark": _benchmark,
    "baseline": _baseline,
}


def parse(output: str) -> Iterator[dict[str, Any]]:
    """Yield the events in the output of a process, without incomplete lines."""
    for line in output.splitlines(keepends=True):
        if line.startswith(MARK) and line.endswith("\n"):
            yield json.loads(line.removeprefix(MARK))


if __name__ == "__main__":
    try:
        main(json.load(sys.stdin))
    except Exception as error:  # drivers raise arbitrary errors, which the parent process records
        _emit("error", problem=describe_error(error))
        sys.exit(1)
