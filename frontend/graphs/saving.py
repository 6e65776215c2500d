"""Captured steps as files, which load without the program that made them.

A file holds declared ops, numbers and tensors, and no code. What Python did between runs is not in it, except for
numbers that grow by themselves, arithmetic on numbers, and random streams.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyhal.graphs.selection import recorded_step
from polyhal.hal.capture.result import UNNAMED, CapturedConstant, CapturedGraph, InputSource, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.capture.scalar_records import ScalarTable
from polyhal.hal.capture.scopes import unique_name
from polyhal.hal.errors import message
from polyhal.hal.ir.serialize import describe
from polyhal.hal.layout import Ref, contiguous, extent
from polyhal.serialize import save
from polyhal.steps.block import CapturedBlock
from polyhal.steps.results import OutputIndex
from polyhal.tensor import Tensor, wrap

FORMAT = "polyhal graph"
SCHEMA = 1
"""The version written. A reader takes files of its own version only."""


def save_graph(step: Any, path: str | os.PathLike[str]) -> Path:
    """Save a captured step: ops, weights and other state with their present values, numbers, and random states.

    `step` is a function of `polyhal.jit` that was recorded for one signature, what `polyhal.capture` gives, or a step that
    `load_graph` loaded. The file, or the folder if `path` has no suffix, is that of `polyhal.save`; it is replaced as a
    whole or not at all. Raises CaptureError for a step that is not recorded, TypeError for results that no file holds.
    """
    recorded = recorded_step(step)
    captured = recorded.captured
    table = ScalarTable()
    state: dict[str, Any] = {}
    sources = [_source_data(captured, i, s, table, state) for i, s in enumerate(captured.sources)]
    returned = recorded.results
    if isinstance(step, CapturedBlock):  # which returns nothing, but leaves tensors behind
        returned = tuple(OutputIndex(i) for i in range(len(captured.graph.outputs)))
    graph = captured.graph.returning(_count(returned))
    data = {
        "format": FORMAT,
        "schema": SCHEMA,
        "graph": describe(graph),
        "sources": sources,
        "results": _result_data(returned, captured.sources, sources, table),
        "numbers": table.entries,
        "streams": [{"state": s.source.get_state(), "blocks": s.blocks} for s in table.streams],
        "state": state,
    }
    return save(data, path)


def _count(pattern: Any) -> int:
    """How many outputs of the graph a pattern of results uses; they are the first ones."""
    if isinstance(pattern, OutputIndex):
        return pattern.index + 1
    parts = pattern.values() if isinstance(pattern, dict) else pattern if isinstance(pattern, (list, tuple)) else ()
    return max(map(_count, parts), default=0)


def _source_data(
    captured: CapturedGraph, i: int, source: InputSource, table: ScalarTable, state: dict[str, Any]
) -> dict[str, Any]:
    """Where an input comes from, as plain data; tensors are put into `state`."""
    if isinstance(source, RuntimeScalar):
        return {"number": table.add(source)}
    if isinstance(source, StepInput):
        gradient = next((g for g in captured.gradients if g.position == source.position), None)
        if gradient is None:
            return {"argument": source.position}
        x = gradient.leaf.stored_grad
        source = CapturedConstant(x.buffer, x.ref, x.device)
        name = f"{_name_of(captured, gradient.leaf)}.grad"
    else:
        name = captured.graph.names.get(i, UNNAMED)
    name = unique_name(name, state)
    ref = source.ref
    if not ref.is_contiguous:
        low, high = extent(ref.shape, ref.strides)
        flat = contiguous(ref.dtype, (high - low + 1 if ref.size else 0,))
        ref = Ref(ref.handle, flat, ref.offset + low)
    state[name] = wrap(source.device, source.buffer, ref)
    return {"state": name}


def _name_of(captured: CapturedGraph, x: Tensor) -> str:
    """What a tensor that the step uses is called."""
    for i, source in enumerate(captured.sources):
        if isinstance(source, CapturedConstant) and source.buffer is x.buffer and source.ref.offset == x.ref.offset:
            return captured.graph.names.get(i, UNNAMED)
    return UNNAMED


def _result_data(found: Any, sources: Sequence[InputSource], told: Sequence[dict[str, Any]], table: ScalarTable) -> Any:
    """What a step returns, as plain data. Raises TypeError."""
    kind = type(found)
    if kind is OutputIndex:
        return {"tensor": found.index}
    if isinstance(found, RuntimeScalar):
        return {"number": table.add(found)}
    if isinstance(found, Tensor):
        for source, data in zip(sources, told, strict=True):
            if (
                isinstance(source, CapturedConstant)
                and source.buffer is found.buffer
                and source.ref.spec == found.ref.spec
            ):
                return {"state": data["state"]}
        raise TypeError(
            message(
                "save_graph", f"the step returns a tensor of shape {found.shape} that it does not use", fix="use it"
            )
        )
    if kind in (list, tuple):
        return {kind.__name__: [_result_data(x, sources, told, table) for x in found]}
    if kind is dict and all(isinstance(k, str) for k in found):
        return {"dict": {k: _result_data(x, sources, told, table) for k, x in found.items()}}
    if found is None or kind in (bool, int, float, str):
        return {"value": found}
    raise TypeError(
        message(
            "save_graph",
            f"the step returns a {kind.__name__}",
            expected="tensors, numbers, strings, and lists, tuples and dictionaries of these",
        )
    )
