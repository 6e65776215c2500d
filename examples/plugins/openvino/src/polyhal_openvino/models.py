"""Models of OpenVINO from graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import openvino
import openvino.opset15 as ov

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import GraphNode, GraphProgram, GraphValue
from polyhal_openvino.functions import ELEMENTWISE, FUNCTIONS, MOVEMENT, TESTS


class GraphModel(NamedTuple):
    """The model of a graph."""

    model: openvino.Model
    computed: list[int]
    """Position of each of the model's results among the outputs of the graph."""
    copied: list[tuple[int, int]]
    """Outputs that have the elements of an input, and the input's position: OpenVINO would give both the same memory."""


def build(graph: GraphProgram, constants: Mapping[int, np.ndarray]) -> GraphModel:
    """Return the model of a graph in which some inputs, by position, are constants. Raises RuntimeError."""
    values: dict[GraphValue, Any] = {}
    parameters = []
    for i, value in enumerate(graph.inputs):
        if i in constants:
            values[value] = ov.constant(constants[i], shared_memory=True).output(0)
        else:
            parameters.append(ov.parameter(value.spec.shape, element_type(value.spec.dtype)))
            values[value] = parameters[-1].output(0)
    for node in graph.nodes:
        values.update(zip(node.results, _results(node, values), strict=True))
    names = {values[x].get_node().get_friendly_name(): i for i, x in enumerate(graph.inputs)}
    sources = [names.get(_source(values[x])) for x in graph.outputs]
    computed = [k for k, source in enumerate(sources) if source is None]
    copied = [(k, source) for k, source in enumerate(sources) if source is not None]
    results = [ov.result(values[graph.outputs[k]]) for k in computed]
    return GraphModel(openvino.Model(results, parameters, "polyhal"), computed, copied)


def _source(value: Any) -> str:
    """Return the name of the node that computes the elements of a value."""
    node = value.get_node()
    while node.get_type_name() == "Reshape":
        node = node.input_value(0).get_node()
    return str(node.get_friendly_name())


def element_type(dtype: DType) -> openvino.Type:
    """Return the type in which a value is computed: numbers and positions have 32 bits."""
    if dtype.name == "bool_":
        return openvino.Type.boolean
    return openvino.Type.f32 if dtype.is_floating_point else openvino.Type.i32


def wrapped(number: Any, kind: np.dtype) -> Any:
    """Return a Python number as bool, as float32, or wrapped to int32."""
    if kind.kind != "i":
        with np.errstate(over="ignore"):
            return kind.type(number)
    return np.array(int(number) & 0xFFFFFFFF, np.uint32).view(np.int32)[()]


def _results(node: GraphNode, values: dict[GraphValue, Any]) -> Sequence[Any]:
    """Return the results of a node, in the dtypes and shapes of its specs."""
    dtype = node.results[0].spec.dtype
    if node.op in FUNCTIONS:
        operands = [values[x] if isinstance(x, GraphValue) else x for x in node.operands]
        made = FUNCTIONS[node.op](node, *operands, **node.params)
    elif node.op in MOVEMENT:
        params = dict(node.params)
        if node.op == "full":
            params["value"] = _operand(params["value"], values, dtype)
        made = MOVEMENT[node.op](node, *_cast_operands(node.operands, values, dtype), **params)
    else:
        tensors = [x.spec.dtype for x in node.operands if isinstance(x, GraphValue) and isinstance(x.spec, Spec)]
        first = 1 if node.op == "where" else 0
        operands = _cast_operands(node.operands[first:], values, tensors[-1] if node.op in TESTS else dtype)
        made = ELEMENTWISE[node.op](*(values[x] for x in node.operands[:first]), *operands, **node.params)
    made = made if isinstance(made, tuple) else (made,)
    return [_shaped(x, v.spec) for x, v in zip(made, node.results, strict=True)]


def _cast_operands(operands: Sequence[Any], values: dict[GraphValue, Any], dtype: DType) -> list[Any]:
    return [_operand(x, values, dtype) for x in operands if x is not None]


def _operand(x: Any, values: dict[GraphValue, Any], dtype: DType) -> Any:
    """Return an operand in a dtype: a value, or a number as a constant."""
    if not isinstance(x, GraphValue):
        return ov.constant(wrapped(x, element_type(dtype).to_dtype())).output(0)
    value, kind = values[x], element_type(dtype)
    current = value.get_element_type()
    if current == kind:
        return value
    if kind == openvino.Type.boolean:  # anything but zero is True
        return ov.not_equal(value, ov.constant(0, current)).output(0)
    return ov.convert(value, kind).output(0)


def _shaped(x: Any, spec: Spec | Any) -> Any:
    out = x if isinstance(x, openvino.Output) else x.output(0)
    if tuple(out.get_shape()) != spec.shape:
        out = ov.reshape(out, ov.constant(np.array(spec.shape, np.int64)), False).output(0)
    return out
