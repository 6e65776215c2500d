"""Graphs of nodes with functions, and which of their values are needed on the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyhal.onnx.element_types import numpy_dtype
from polyhal.onnx.registration import Operator
from polyhal.onnx.stored import Initializer

_SHAPE_ARITHMETIC = frozenset(
    (
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Concat",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Expand",
        "Floor",
        "Gather",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Pow",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Sub",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    )
)
"""Operators by which models compute shapes."""


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input: its element type (0 if it is not a tensor), and its shape with names of unknown lengths."""

    name: str
    element_type: int
    shape: tuple[int | str | None, ...] | None
    optional: bool

    @property
    def is_small_integer(self) -> bool:
        """True for integers with at most one axis, as lengths and positions are."""
        dtype = numpy_dtype(self.element_type) if self.element_type else None
        return self.shape is not None and len(self.shape) <= 1 and dtype is not None and dtype.kind in "iub"

    def zeros(self) -> np.ndarray | None:
        """Return an array of zeros for the input; None unless it is a tensor of numbers whose lengths are all known."""
        lengths = [n for n in self.shape or () if isinstance(n, int)]
        dtype = numpy_dtype(self.element_type) if self.element_type else None
        if self.shape is None or len(lengths) < len(self.shape) or self.optional or dtype is None or dtype.kind == "O":
            return None
        return np.zeros(lengths, dtype)


@dataclass(frozen=True)
class OnnxNode:
    """A call of an operator's function."""

    name: str
    op: str
    version: int
    operator: Operator | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, object]
    same_type: tuple[int | None, ...]
    """For each result the index of an input with the same element type, if there is one."""

    @cached_property
    def subgraphs(self) -> tuple[OnnxGraph, ...]:
        """The graphs among the attributes, such as the branches of an If."""
        return tuple(a for a in self.attributes.values() if isinstance(a, OnnxGraph))

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the values that the node or its graphs read."""
        inner = frozenset[str]().union(*(g.captured for g in self.subgraphs))
        return frozenset(filter(None, self.inputs)) | inner


@dataclass(frozen=True)
class OnnxGraph:
    """Nodes in the order in which they run."""

    name: str
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    output_types: tuple[int, ...]
    """Element types of the results; 0 for unknown ones."""
    stored: dict[str, Initializer]
    nodes: tuple[OnnxNode, ...]

    @cached_property
    def captured(self) -> frozenset[str]:
        """Names of values of surrounding graphs that this one reads."""
        known = {i.name for i in self.inputs} | self.stored.keys()
        found: set[str] = set()
        for node in self.nodes:
            found |= node.reads - known
            known.update(node.outputs)
        return frozenset(found | (set(self.outputs) - known))

    @cached_property
    def released(self) -> tuple[tuple[str, ...], ...]:
        """For each node the values that no later node reads."""
        needed = set(self.outputs)
        released = []
        for node in reversed(self.nodes):
            names = (node.reads | set(filter(None, node.outputs))) - needed
            released.append(tuple(sorted(names - self.captured)))
            needed |= node.reads
        return tuple(reversed(released))

    @cached_property
    def on_host(self) -> frozenset[str]:
        """Names of values that functions of operators need on the host, and of values from which shapes are computed."""
        wanted: set[str] = set()
        direct: set[str] = set()
        for node in reversed(self.nodes):
            wanted |= {name for g in node.subgraphs for name in g.on_host & g.captured}
            if node.operator is None or node.operator.elements:
                continue
            for name, parameter in zip(node.inputs, node.operator.positional, strict=False):
                if parameter in node.operator.host and name:
                    wanted.add(name)
                    direct.add(name)
            if wanted & set(node.outputs) and node.op in _SHAPE_ARITHMETIC:
                wanted |= set(filter(None, node.inputs))
        small = {i.name for i in self.inputs if i.is_small_integer}
        inputs = {i.name for i in self.inputs}
        return frozenset(name for name in wanted if name not in inputs or name in direct or name in small)
