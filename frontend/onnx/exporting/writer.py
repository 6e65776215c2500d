"""Writing ops of a graph as nodes of ONNX: names of values, constants, and the functions that write each op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from polyhal.hal.compile.ir.graph import Graph, Node, Operand
from polyhal.hal.compile.ir.graph import Value as GraphValue
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.planning.decompose import decomposition
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Number

Name = str
"""Name of a value in the model."""
Constant = Number | bool | Sequence[Any] | np.ndarray


def element_type(dtype: DType) -> int:
    """Return ONNX's element type of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(dtype.numpy))


@dataclass(frozen=True)
class ExportedOp:
    """An op of a graph with the names of its operands."""

    writer: GraphWriter
    inputs: tuple[Name | Number | None, ...]
    specs: tuple[Any, ...]
    """Specs of the operands."""
    params: dict[str, Any]
    outputs: tuple[Spec, ...]

    @property
    def count(self) -> int:
        """Number of operands."""
        return len(self.inputs)

    def has(self, index: int) -> bool:
        """Return whether an operand is present."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def dtype(self, index: int = 0) -> DType:
        """Return the dtype of an operand, for a number that of the result."""
        spec = self.specs[index]
        return spec.dtype if isinstance(spec, Spec) else self.outputs[0].dtype

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the shape of an operand."""
        spec = self.specs[index]
        return spec.shape if isinstance(spec, Spec) else ()

    def name(self, index: int = 0, dtype: DType | None = None) -> Name:
        """Return the name of an operand in a dtype, its own one by default."""
        operand = self.inputs[index]
        target = dtype or self.dtype(index)
        if operand is None:
            return ""
        if not isinstance(operand, str):
            return self.constant(operand, target)
        spec = self.specs[index]
        return operand if isinstance(spec, Spec) and spec.dtype is target else self.cast(operand, target)

    def cast(self, name: Name, dtype: DType) -> Name:
        """Write a cast."""
        return self.write("Cast", name, to=element_type(dtype))

    def constant(self, value: Constant, dtype: DType | None = None) -> Name:
        """Write a constant: integers by default."""
        return self.writer.constant(np.asarray(value, np.int64 if dtype is None else dtype.numpy))

    def write(self, op: str, *inputs: Name, **attributes: Any) -> Name:
        """Write a node with one result."""
        return self.writer.add(op, inputs, 1, attributes)[0]

    def reshape(self, name: Name, shape: Sequence[int]) -> Name:
        """Write a reshape."""
        return self.write("Reshape", name, self.constant(shape))


Exporter = Callable[[ExportedOp], Name | tuple[Name, ...]]
"""Writes nodes for an op, and returns the names of its results: of the first ones, if only these are needed."""
EXPORTERS: dict[str, Exporter] = {}


def exported(*names: str) -> Callable[[Exporter], Exporter]:
    """Register the function that writes ops of these names."""

    def register(function: Exporter) -> Exporter:
        for name in names:
            EXPORTERS[name] = function
        return function

    return register


class GraphWriter:
    """Collects the nodes and constants of a model."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.stored: list[TensorProto] = []
        self.refused: list[str] = []
        """Ops that have no form in ONNX, with the line of the program that calls them."""
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Name] = {}
        self._module = ""
        self._count = 0

    def add(self, op: str, inputs: Sequence[Name], count: int, attributes: dict[str, Any]) -> list[Name]:
        """Add a node, and return the names of its results."""
        self._count += 1
        prefix = f"{self._module}." if self._module else ""
        names = [f"v{self._count}" if count == 1 else f"v{self._count}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{prefix}{op}_{self._count}", **attributes))
        return names

    def constant(self, array: np.ndarray) -> Name:
        """Add an initializer, or find an equal one."""
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self.stored.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def write(self, graph: Graph, operands: Sequence[Name | Number | None]) -> list[Name | Number | None]:
        """Write the nodes of a graph whose inputs have these names, and return the names of its outputs."""
        values = dict(enumerate(operands))
        for node in graph.nodes:
            if node.origin is not None:
                self._module = node.origin.module
            given = tuple(values.get(x.index) if isinstance(x, GraphValue) else x for x in node.inputs)
            for value, name in zip(node.outputs, self._node(graph, node, given), strict=False):
                values[value] = name
        return [values.get(v) for v in graph.outputs]

    def _node(self, graph: Graph, node: Node, given: tuple[Any, ...]) -> Sequence[Name | Number | None]:
        """Write a node, or the ops that it consists of."""
        specs = _specs(graph, node)
        outputs = graph.output_specs(node)
        exporter = EXPORTERS.get(node.op.name)
        if exporter is not None:
            made = exporter(ExportedOp(self, given, specs, node.bound, outputs))
            return (made,) if isinstance(made, str) else made
        if node.op.decompose is None and not node.inputs and Trait.VARYING not in node.op.traits:
            found = node.op.reference(**node.bound)
            arrays = found if isinstance(found, tuple) else (found,)
            return [self.constant(np.asarray(a, s.dtype.numpy)) for a, s in zip(arrays, outputs, strict=True)]
        if node.op.decompose is None:
            return self._refuse(node)
        stand_ins = node.origin.device.stand_ins if node.origin is not None else {}
        parts = trace(decomposition(node.op, outputs), specs, node.bound, stand_ins)
        if any(part.op is node.op and _specs(parts, part) == specs for part in parts.nodes):
            return self._refuse(node)  # it consists of itself, as a write to a view does
        return self.write(parts, given)

    def _refuse(self, node: Node) -> Sequence[Name]:
        where = f" in {node.origin.module}" if node.origin is not None and node.origin.module else ""
        if f"{node.op.name}{where}" not in self.refused:
            self.refused.append(f"{node.op.name}{where}")
        return ()


def _specs(graph: Graph, node: Node) -> tuple[Any, ...]:
    return tuple(_spec(graph, x) for x in node.inputs)


def _spec(graph: Graph, operand: Operand) -> Any:
    spec = graph.spec_of(operand)
    return spec if isinstance(spec, Spec | ScalarSpec) else None
