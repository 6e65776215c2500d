"""A captured step on another device: the recorded graph with the dtypes of the device, and its memory there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyhal.graphs.loading import LoadedGraph, read_graph
from polyhal.graphs.saving import graph_data
from polyhal.graphs.selection import recorded_step
from polyhal.hal.compile.ir.graph import Node
from polyhal.hal.compile.scheduler.schedule import deciding
from polyhal.hal.core.execution.location import SourceLocation
from polyhal.hal.core.execution.user_line import line_text
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import ExportError, message
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.ops.traits import Trait
from polyhal.serialize.checkpoint import eager
from polyhal.tensor import Tensor


@dataclass(slots=True)
class Retargeted:
    """A step that was loaded for a device."""

    loaded: LoadedGraph
    saved_dtypes: dict[str, str] = field(default_factory=dict)
    """Dtypes of the state before narrower ones took their places, by name."""
    recorded: dict[str, Tensor] = field(default_factory=dict)
    """The tensors of the state as recorded, by name; none for a file."""


def place_of(node: Node) -> str:
    """Return a node's op with the module and the line of the program that it comes from, as far as they are known."""
    origin = node.origin
    location = None if origin is None else origin.location
    module = f" of {origin.module}" if origin is not None and origin.module else ""
    return f"{node.op.name}{module}{_at(location)}"


def _at(location: SourceLocation | None) -> str:
    """Return where a line of the program is, to follow the name of an op; empty if it is not known."""
    return f", at {line_text(location.file, location.line)}" if location is not None and location.file else ""


def refuse(problems: list[str], target: str) -> None:
    """Raise ExportError if there are problems, with each of them once."""
    if problems:
        listed = "\n".join(f"  - {p}" for p in dict.fromkeys(problems))
        problem = f"the step cannot be exported to {target}:\n{listed}"
        raise ExportError(message("export", problem, fix="move this work out of the captured step"))


def retarget(step: Any, device: Device, target: str) -> Retargeted:
    """Load a recorded step, or a file of `save_graph`, on a device that records.

    Raises ExportError, with all reasons, for a step that needs Python or several devices while it runs.
    """
    if isinstance(step, (str, os.PathLike)):
        data = {k: v if k == "state" else eager(v) for k, v in read_graph(step).items()}
        path = str(step)
    else:
        captured = recorded_step(step).captured
        refuse(_problems(captured), target)
        data, path = graph_data(step), "the step"
        for entry, node in zip(data["graph"]["nodes"], captured.graph.nodes, strict=True):
            if node.origin is not None:
                entry["location"] = node.origin.location
    devices = dict.fromkeys(str(p["device"]) for p in data["graph"]["places"])
    if len(devices) > 1:
        refuse([f"it runs on several devices: {', '.join(devices)}"], target)
    narrow = {wide.name: stand_in.name for wide, stand_in in device.stand_ins.items()}
    problems = list(_too_large(data["graph"], narrow))
    narrowed = {**data, "graph": _narrowed(data["graph"], narrow)}
    narrowed["state"], saved = _narrowed_state(data["state"], narrow, problems)
    stored = {d.name for d in device.capabilities.storage}
    for entry in narrowed["graph"]["nodes"]:
        wide = {s["dtype"] for s in entry["outputs"]} - stored
        if wide:
            at = _at(entry.get("location"))
            problems.append(f"{entry['op']}{at} computes in {', '.join(sorted(wide))}, which {target} does not have")
    refuse(problems, target)
    recorded = {} if isinstance(step, (str, os.PathLike)) else dict(data["state"])
    return Retargeted(LoadedGraph(path, narrowed, device), saved, recorded)


def _problems(captured: Any) -> list[str]:
    """Return why a step needs Python or another device while it runs."""
    graph, problems = captured.graph, []
    decides = set(deciding(graph, captured.check))
    for k, node in enumerate(graph.nodes):
        if node.op is HOST_CALL:
            problems.append(f"a Python function is called: {place_of(node)}")
        elif Trait.CROSS_DEVICE in node.op.traits:
            problems.append(f"another device takes part: {place_of(node)}")
        elif k in decides:
            problems.append(f"Python reads a value and decides by it: {place_of(node)}")
    return problems


def _narrowed(data: Any, narrow: Mapping[str, str]) -> Any:
    """Return the description of a graph with the dtypes of its tensors replaced; numbers keep theirs."""
    if isinstance(data, list):
        return [_narrowed(x, narrow) for x in data]
    if isinstance(data, dict):
        return {
            k: narrow.get(v, v) if k == "dtype" and isinstance(v, str) else _narrowed(v, narrow)
            for k, v in data.items()
        }
    return data


def _too_large(graph: Mapping[str, Any], narrow: Mapping[str, str]) -> Iterator[str]:
    """Yield the ops of a described graph with whole numbers that the dtypes in place of their wider ones do not hold."""
    known = [(entry["spec"] or {}).get("dtype", "") for entry in graph["inputs"]]
    for entry in graph["nodes"]:
        made = [spec["dtype"] for spec in entry["outputs"]]
        read = [known[x["value"]] for x in entry["inputs"] if isinstance(x, dict) and "value" in x]
        known += made
        kinds = [as_dtype(narrow[name]) for name in dict.fromkeys([*read, *made]) if name in narrow]
        for x in (*entry["inputs"], *entry["params"].values()):
            for kind in kinds:
                limits = np.iinfo(kind.numpy)
                if type(x) is int and not limits.min <= x <= limits.max:
                    yield f"{entry['op']}{_at(entry.get('location'))} has the number {x}, which {kind.name} does not hold"


def _narrowed_state(
    state: Mapping[str, Any], narrow: Mapping[str, str], problems: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the state as arrays in the dtypes of the device, and the dtypes that were replaced."""
    arrays: dict[str, Any] = {}
    saved: dict[str, str] = {}
    for name in state:
        value = state[name]
        if isinstance(value, Tensor) and value.dtype.name not in narrow:
            arrays[name] = value
            continue
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.name in narrow:
            kind = as_dtype(narrow[array.dtype.name])
            smaller = array.astype(kind.numpy)
            if not np.array_equal(smaller, array):
                problems.append(f"{name} has {array.dtype.name} numbers that {kind.name} does not hold")
            saved[name] = array.dtype.name
            array = smaller
        arrays[name] = array
    return arrays, saved
