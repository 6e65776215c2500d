"""Reading a model: the file or the message of ONNX becomes a graph whose nodes have their functions, or an error that lists all
nodes without one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from polyhal.hal.core.settings.pages import page
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, UnsupportedOpError, message
from polyhal.onnx import table as _table  # noqa: F401  fills the table of operators
from polyhal.onnx.attention_nodes import join_attention
from polyhal.onnx.expansion import expanded
from polyhal.onnx.graph import GraphInput, OnnxGraph, OnnxNode
from polyhal.onnx.registration import find
from polyhal.onnx.stored import Initializer

OLDEST_OPSET = 7
"""The first opset whose elementwise operators broadcast as NumPy does."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read: its graph, and the versions of the domains of its operators."""

    graph: OnnxGraph
    opsets: dict[str, int]
    producer: str


def read_model(source: str | os.PathLike[str] | bytes | ModelProto) -> Model:
    """Read a model from a file, its bytes or a message. External data is opened when its tensors are needed.

    Raises CorruptFileError for files that are damaged, IncompatibleFileError for opsets that are too old or too new, and
    UnsupportedOpError with all nodes whose operators have no function.
    """
    folder: Path | None = None
    if isinstance(source, ModelProto):
        proto = source
    else:
        named = "the model"
        if not isinstance(source, bytes):
            path = Path(source)
            folder, named, source = path.parent, str(path), path.read_bytes()
        proto = _parsed(source, named)
    opsets = _opsets(proto)
    proto = expanded(proto, opsets)
    reader = _Reader(opsets, folder)
    graph = reader.graph(proto.graph, frozenset())
    reader.refuse()
    return Model(graph, opsets, proto.producer_name)


def _parsed(data: bytes, named: str) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        problem = f"{named} is not a complete ONNX model: {error}"
        raise CorruptFileError(message("onnx", problem, fix="download or export it again")) from error
    if not proto.HasField("graph") or not proto.opset_import:
        raise CorruptFileError(
            message("onnx", f"{named} has no graph or no opset", expected="an ONNX model", fix="export it again")
        )
    wrong = next((x for x in _names(proto) if not isinstance(x, str)), None)
    if wrong is not None:
        problem = f"{named} has a name that is not UTF-8 text: {wrong!r}"
        raise CorruptFileError(message("onnx", problem, fix="download or export it again"))
    return proto


def _names(proto: ModelProto) -> Iterator[object]:
    """Yield the names in a model. protobuf returns bytes for one that is damaged."""
    yield from (o.domain for o in proto.opset_import)
    yield from _names_of_graph(proto.graph)
    for function in proto.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
        yield from _names_of_nodes(function.node)


def _names_of_graph(graph: onnx.GraphProto) -> Iterator[object]:
    yield from (x.name for x in (*graph.input, *graph.output, *graph.value_info, *graph.initializer))
    yield from (x.values.name for x in graph.sparse_initializer)
    yield from _names_of_nodes(graph.node)


def _names_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _names_of_graph(graph)


def _opsets(proto: ModelProto) -> dict[str, int]:
    found = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    newest = onnx.defs.onnx_opset_version()
    version = found.get("", newest)
    if not OLDEST_OPSET <= version <= newest:
        raise IncompatibleFileError(
            message(
                "onnx",
                f"the model has opset {version}",
                expected=f"{OLDEST_OPSET} to {newest}",
                fix="convert it by onnx.version_converter" if version < OLDEST_OPSET else "pip install -U onnx",
            )
        )
    return found


class _Reader:
    """Makes graphs of messages, and notes nodes that cannot run."""

    def __init__(self, opsets: dict[str, int], folder: Path | None) -> None:
        self._opsets = opsets
        self._folder = folder
        self._refused: list[str] = []

    def graph(self, proto: GraphProto, outer: frozenset[str]) -> OnnxGraph:
        """Return a graph, with the graphs of its nodes' attributes. `outer` has the values of surrounding graphs."""
        stored = {t.name: Initializer(t, self._folder) for t in proto.initializer}
        stored |= {s.values.name: _dense(s, self._folder) for s in proto.sparse_initializer}
        inputs = tuple(_input(v, v.name in stored) for v in proto.input)
        known = {i.name for i in inputs} | stored.keys()
        nodes = []
        for index, node in enumerate(proto.node):
            nodes.append(self._node(node, index, outer | known))
            for name in filter(None, node.output):
                if name in known:
                    raise _invalid(f"the value {name!r} is computed twice, again by the node {_name(node, index)!r}")
                known.add(name)
        outputs = tuple(v.name for v in proto.output)
        for name in outputs:
            if name not in known and name not in outer:
                raise _invalid(f"the result {name!r} is not computed by any node")
        types = tuple(v.type.tensor_type.elem_type for v in proto.output)
        return OnnxGraph(proto.name, inputs, outputs, types, stored, join_attention(nodes, stored, outputs))

    def refuse(self) -> None:
        """Raise UnsupportedOpError if there are nodes without a function, with all of them."""
        if self._refused:
            raise UnsupportedOpError(
                message(
                    "onnx",
                    f"{len(self._refused)} nodes cannot run: {'; '.join(self._refused)}",
                    expected=f"operators of {page('onnx')}",
                    fix="export the model with other operators, or declare a function by polyhal.onnx.operator",
                )
            )

    def _node(self, proto: NodeProto, index: int, known: frozenset[str] | set[str]) -> OnnxNode:
        name = _name(proto, index)
        for value in filter(None, proto.input):
            if value not in known:
                problem = f"the node {name!r} ({proto.op_type}) reads {value!r}, which no input or earlier node defines"
                raise _invalid(problem)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = self._opsets.get(domain, 1)
        attributes = {a.name: self._attribute(a, name, frozenset(known)) for a in proto.attribute}
        found = find(domain, proto.op_type, version)
        problem = ""
        if found is None:
            problem = f"{proto.op_type} of {domain or 'ai.onnx'} {version}"
        elif not found.any_attribute and (unknown := sorted(attributes.keys() - found.keywords)):
            problem = f"{proto.op_type} with {', '.join(unknown)}"
        elif not found.variadic and len(proto.input) > len(found.positional):
            problem = f"{proto.op_type} with {len(proto.input)} inputs"
        if problem:
            self._refused.append(f"{name} ({problem})")
        same = _result_types(domain, proto.op_type, version, len(proto.input), len(proto.output))
        return OnnxNode(name, proto.op_type, version, found, tuple(proto.input), tuple(proto.output), attributes, same)

    def _attribute(self, proto: AttributeProto, node: str, known: frozenset[str]) -> object:
        kind = proto.type
        if kind == AttributeProto.GRAPH:
            return self.graph(proto.g, known)
        if kind in (AttributeProto.TENSOR, AttributeProto.SPARSE_TENSOR):
            stored = (
                Initializer(proto.t, self._folder)
                if kind == AttributeProto.TENSOR
                else _dense(proto.sparse_tensor, self._folder)
            )
            return stored.read()
        if kind == AttributeProto.STRING:
            return proto.s.decode("utf-8", "replace")
        if kind == AttributeProto.STRINGS:
            return [s.decode("utf-8", "replace") for s in proto.strings]
        if kind == AttributeProto.TENSORS:
            return [Initializer(t, self._folder).read() for t in proto.tensors]
        try:
            value = onnx.helper.get_attribute_value(proto)
        except ValueError as error:
            raise _invalid(f"the attribute {proto.name!r} of the node {node!r} is damaged: {error}") from error
        return list(value) if isinstance(value, Iterable) else value


def _name(node: NodeProto, index: int) -> str:
    return node.name or f"{node.op_type}_{index}"


def _invalid(problem: str) -> CorruptFileError:
    fix = "check it by onnx.checker.check_model, and export it again"
    return CorruptFileError(message("onnx", problem, expected="nodes in topological order", fix=fix))


def _input(value: ValueInfoProto, optional: bool) -> GraphInput:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return GraphInput(value.name, 0, None, optional or kind == "optional_type")
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim)
    return GraphInput(value.name, tensor.elem_type, shape, optional)


def _dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> Initializer:
    """Return a sparse tensor with its zeros. Raises CorruptFileError for indices outside of its shape."""
    values, indices = Initializer(sparse.values, folder).read(), Initializer(sparse.indices, folder).read()
    shape = tuple(sparse.dims)
    try:
        dense = np.zeros(shape, values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError, MemoryError) as error:
        raise _invalid(f"the sparse tensor {sparse.values.name!r} does not fit {list(shape)}: {error}") from error
    proto: TensorProto = onnx.numpy_helper.from_array(dense, sparse.values.name)
    return Initializer(proto, folder)


def _result_types(domain: str, op: str, version: int, inputs: int, outputs: int) -> tuple[int | None, ...]:
    """Return the index, for each result, of an input of the same element type, None if there is none."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return (None,) * outputs
    given = {p.type_str: i for i, p in reversed(list(enumerate(_repeated(schema.inputs, inputs))))}
    return tuple(
        given.get(p.type_str) if "(" not in p.type_str and p.is_homogeneous else None
        for p in _repeated(schema.outputs, outputs)
    )


def _repeated(
    declared: Iterable[onnx.defs.OpSchema.FormalParameter], count: int
) -> Iterator[onnx.defs.OpSchema.FormalParameter]:
    """Yield a declaration for each of `count` values: the last one of a variadic operator repeats."""
    last = None
    for last in declared:
        if not count:
            return
        count -= 1
        yield last
    while count and last is not None:
        count -= 1
        yield last
