"""A profile in the Trace Event Format of Chrome, which Perfetto displays: tracks of host, devices, copies and memory.

Source of the format: "Trace Event Format", Google, 2016. A flow leads from each call to its launches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polyhal.profiler.records import CallRecord, LaunchRecord, Records

_HOST = 1
_RANGES, _OPS, _COPIES = 1, 2, 3
"""Threads of the host's process."""


def write(records: Records, path: Path) -> None:
    """Write all records. Times start at the profile's begin."""
    path.write_text(json.dumps({"traceEvents": list(_events(records)), "displayTimeUnit": "ms"}), encoding="utf-8")


def _events(records: Records) -> Iterator[dict[str, Any]]:
    start = records.begin
    devices = dict.fromkeys([x.device for x in records.launches] + [m.device for m in records.memory])
    processes = {device: k for k, device in enumerate(devices, _HOST + 1)}
    yield _name("process_name", _HOST, 0, "host")
    for thread, name in ((_RANGES, "ranges"), (_OPS, "ops"), (_COPIES, "copies")):
        yield _name("thread_name", _HOST, thread, name)
    for device, process in processes.items():
        yield _name("process_name", process, 0, device)
        yield _name("thread_name", process, 1, "kernels")
    for named in records.ranges:
        yield _span(named.name, "range", _HOST, _RANGES, named.begin - start, named.end - start)
    numbers: dict[int, int] = {}
    for number, call in enumerate(records.calls, 1):
        numbers[id(call)] = number
        yield _span(call.op, "op", _HOST, _OPS, call.begin - start, call.end - start, _call_facts(call))
        if call.launches:
            yield _flow("s", number, _HOST, _OPS, call.begin - start)
    for copy in records.copies:
        facts = {"bytes": copy.nbytes, "device": copy.device, "waited us": copy.waited / 1e3}
        yield _span(copy.direction, "copy", _HOST, _COPIES, copy.begin - start, copy.end - start, facts)
    for launch in records.launches:
        process = processes[launch.device]
        begin, end = launch.begin - start, launch.end - start
        yield _span(launch.kernel, "kernel", process, 1, begin, end, _launch_facts(launch))
        if launch.call is not None:
            yield _flow("f", numbers[id(launch.call)], process, 1, begin)
    for sample in records.memory:
        yield {
            "ph": "C",
            "name": "memory in use",
            "pid": processes[sample.device],
            "ts": (sample.at - start) / 1e3,
            "args": {"bytes": sample.used},
        }


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _span(
    name: str, category: str, process: int, thread: int, begin: int, end: int, facts: Mapping[str, Any] = {}
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "args": {key: value for key, value in facts.items() if value},
    }


def _flow(phase: str, number: int, process: int, thread: int, at: int) -> dict[str, Any]:
    """Return the start or the end of an arrow."""
    event = {
        "ph": phase,
        "name": "launch",
        "cat": "launch",
        "id": number,
        "pid": process,
        "tid": thread,
        "ts": at / 1e3,
    }
    return event if phase == "s" else {**event, "bp": "e"}


def _call_facts(call: CallRecord) -> dict[str, Any]:
    return {
        "operands": ", ".join(call.operands),
        "results": ", ".join(call.results),
        "flops": call.flops,
        "bytes": call.nbytes,
        "device": call.device,
        "line": call.location.text,
        **call.location.facts,
    }


def _launch_facts(launch: LaunchRecord) -> dict[str, Any]:
    facts = launch.facts
    return {
        "op": launch.op,
        "flops": launch.flops,
        "bytes": launch.nbytes,
        "line": launch.location.text,
        **launch.location.facts,
        **({} if facts is None else facts._asdict()),
    }


__all__ = ["write"]
