"""Captured steps as files, which load without the program that made them.

A file contains declared ops, numbers and tensors, and no code. What Python did between runs is lost, except for numbers that
grow from run to run, arithmetic on numbers, and random streams.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from polyhal.graphs.selection import recorded_step
from polyhal.hal.compile.capture.result import UNNAMED, CapturedGraph, InputSource
from polyhal.hal.compile.capture.scalar_records import ScalarTable
from polyhal.hal.compile.capture.scopes import unique_name
from polyhal.hal.compile.ir.graph import CapturedConstant
from polyhal.hal.compile.ir.serialize import describe
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref, contiguous, extent
from polyhal.hal.ops.top_level import top_level
from polyhal.serialize import save
from polyhal.steps.block import CapturedBlock
from polyhal.steps.given import GivenTensor, NewLeaf
from polyhal.steps.results import OutputIndex, WithGradient
from polyhal.tensor import Tensor, wrap

FORMAT = "polyhal graph"
SCHEMA = 1
"""The version written. A reader takes files of its own version only."""


@top_level
def save_graph(step: Any, path: str | os.PathLike[str]) -> Path:
    """Save a captured step: ops, weights and other state with their present values, numbers, and random states.

    `step` is a function of `polyhal.jit` that was recorded for one signature, a block of `polyhal.capture`, or a step of
    `load_graph`. The file, or the folder if `path` has no suffix, has the format of `polyhal.save` and is replaced as a whole
    or not at all. Raises CaptureError for a step that is not recorded, TypeError for results that cannot be saved.
    """
    return save(graph_data(step), path)


def graph_data(step: Any) -> dict[str, Any]:
    """Return the content of a file of `save_graph`. Raises as it does."""
    recorded = recorded_step(step)
    graph, results = recorded.captured.graph, recorded.results
    if isinstance(step, CapturedBlock):  # it returns nothing, but leaves live-outs
        results = tuple(OutputIndex(i) for i in range(len(graph.outputs)))
    encoder = _Encoder(recorded.captured)
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "graph": describe(graph.returning(_output_count(results))),
        "arguments": list(recorded.argument_names),
        "sources": encoder.sources,
        "results": encoder.result(results),
        "numbers": encoder.scalars.entries,
        "streams": [{"state": s.source.get_state(), "blocks": s.blocks} for s in encoder.scalars.streams],
        "state": encoder.state,
    }


def _output_count(structure: Any) -> int:
    """How many outputs of the graph a structure of results uses; they are the first ones."""
    if isinstance(structure, OutputIndex):
        return structure.index + 1
    if isinstance(structure, WithGradient):
        return _output_count(structure.tensor)
    parts = structure.values() if isinstance(structure, dict) else structure
    return max(map(_output_count, parts), default=0) if isinstance(structure, (list, tuple, dict)) else 0


class _Encoder:
    """Turns inputs and results of a step into plain data."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.scalars = ScalarTable()
        self.state: dict[str, Tensor] = {}
        """The tensors of captured constants, by name."""
        self._captured = captured
        self.sources = [self._source(i, s) for i, s in enumerate(captured.sources)]
        """Where each graph input comes from."""

    def result(self, value: Any) -> Any:
        """The results of a step. Raises TypeError for other things than tensors, plain values and trees of them."""
        kind = type(value)
        if kind is OutputIndex:
            return {"tensor": value.index}
        if kind is WithGradient:  # a loaded step has no tape
            return self.result(value.tensor)
        if kind is GivenTensor:
            return self._given(value)
        if kind is NewLeaf:
            return self._given(value.given)
        if isinstance(value, RuntimeScalar):
            return {"number": self.scalars.add(value)}
        if isinstance(value, Tensor):
            return {"state": self._name_of_constant(value)}
        if isinstance(value, (list, tuple)):  # named tuples as plain ones
            return {"list" if isinstance(value, list) else "tuple": [self.result(x) for x in value]}
        if kind is dict and all(isinstance(k, str) for k in value):
            return {"dict": {k: self.result(x) for k, x in value.items()}}
        if value is None or kind in (bool, int, float, str):
            return {"value": value}
        raise TypeError(
            message(
                "save_graph",
                f"the step returns a {kind.__name__}",
                expected="tensors, numbers, strings, and lists, tuples and dictionaries of these",
            )
        )

    def _given(self, value: GivenTensor) -> dict[str, Any]:
        """Describe an argument, a tensor that the step uses, or a view of such a tensor."""
        source, distance = value.source, value.distance
        while isinstance(source, NewLeaf):  # a loaded step has no tape
            given = source.given
            source, distance = given.source, distance + given.distance
        found = {"argument": source} if isinstance(source, int) else {"state": self._name_of_constant(source)}
        if value.is_source:
            return found
        return {"view": [found, list(value.spec.shape), list(value.spec.strides), distance]}

    def _source(self, i: int, source: InputSource) -> dict[str, Any]:
        if isinstance(source, RuntimeScalar):
            return {"number": self.scalars.add(source)}
        if isinstance(source, CapturedConstant):
            return {"state": self._add_state(self._captured.graph.names.get(i, UNNAMED), source)}
        gradient = next((g for g in self._captured.gradients if g.position == source.position), None)
        if gradient is None:
            return {"argument": source.position}
        x = gradient.leaf.stored_grad
        constant = CapturedConstant(x.buffer, x.ref, x.device)
        return {"state": self._add_state(f"{self._name_of_leaf(gradient.leaf)}.grad", constant)}

    def _add_state(self, name: str, constant: CapturedConstant) -> str:
        """Add the memory of a constant under a name of its own, which is returned. Strided memory is saved with its gaps."""
        name = unique_name(name, self.state)
        ref = constant.ref
        if not ref.is_contiguous:
            low, high = extent(ref.shape, ref.strides)
            flat = contiguous(ref.dtype, (high - low + 1 if ref.size else 0,))
            ref = Ref(ref.handle, flat, ref.offset + low)
        self.state[name] = wrap(constant.device, constant.buffer, ref)
        return name

    def _name_of_leaf(self, x: Tensor) -> str:
        """The name of a tensor that the step uses."""
        for i, source in enumerate(self._captured.sources):
            if isinstance(source, CapturedConstant) and source.buffer is x.buffer and source.ref.offset == x.ref.offset:
                return self._captured.graph.names.get(i, UNNAMED)
        return UNNAMED

    def _name_of_constant(self, x: Tensor) -> str:
        """The name under which the memory of a returned tensor is saved. Raises TypeError if the step does not use it."""
        for source, data in zip(self._captured.sources, self.sources, strict=True):
            if isinstance(source, CapturedConstant) and source.buffer is x.buffer and source.ref.spec == x.ref.spec:
                return str(data["state"])
        problem = f"the step returns a tensor of shape {x.shape} that it does not use"
        raise TypeError(message("save_graph", problem, fix="use it"))
