"""Functions of a model, and operators that ONNX itself declares as functions of others: replaced by their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from polyhal.hal.errors import CorruptFileError, message
from polyhal.onnx.registration import find

_LARGE = 1024
"""Size in bytes of initializers that are left out while functions are replaced."""
_DOMAIN = "polyhal.expanded"


def expanded(proto: ModelProto, opsets: dict[str, int]) -> ModelProto:
    """Return a model without calls of its own functions, and of operators that only have a definition by ONNX."""
    if not proto.functions and not any(_missing(proto, opsets)):
        return proto
    light, data = _without_data(proto)
    try:
        if light.functions:
            _give_defaults(light)
            light = onnx.inliner.inline_local_functions(light, convert_version=False)
        tried: set[tuple[str, ...]] = set()
        while missing := [node for node in _missing(light, opsets) if tuple(node.output) not in tried]:
            tried |= {tuple(node.output) for node in missing}
            _declare(light, missing, opsets)
            light = onnx.inliner.inline_local_functions(light, convert_version=False)
    except (RuntimeError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        problem = f"functions of the model cannot be replaced by their nodes: {error}"
        raise CorruptFileError(message("onnx", problem, fix="check the model by onnx.checker.check_model")) from error
    for tensor in light.graph.initializer:
        if tensor.name in data:
            tensor.CopyFrom(data[tensor.name])
    return light


def is_function(domain: str, op: str, version: int) -> bool:
    """Return whether ONNX defines an operator by others."""
    try:
        schema: Any = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _missing(proto: ModelProto, opsets: dict[str, int]) -> Iterator[NodeProto]:
    """Yield the nodes without a function of ours and with a definition of ONNX."""
    for node in _nodes(proto.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = opsets.get(domain, 1)
        if find(domain, node.op_type, version) is None and is_function(domain, node.op_type, version):
            yield node


def _give_defaults(proto: ModelProto) -> None:
    """Give calls of the model's functions the default values of their attributes, which the inliner leaves out."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    nodes = [*_nodes(proto.graph.node), *(node for f in proto.functions for node in _nodes(f.node))]
    for node in nodes:
        if function := functions.get((node.domain, node.op_type, node.overload)):
            given = {a.name for a in node.attribute}
            node.attribute.extend(a for a in function.attribute_proto if a.name not in given)


def _declare(proto: ModelProto, nodes: list[NodeProto], opsets: dict[str, int]) -> None:
    """Make nodes calls of functions of the model, with the definitions that ONNX has for their inputs."""
    inferred = onnx.shape_inference.infer_shapes(proto)
    types = {
        v.name: v.type for graph in _graphs(inferred.graph) for v in (*graph.input, *graph.value_info, *graph.output)
    }
    types |= {t.name: _type_of(t) for graph in _graphs(proto.graph) for t in graph.initializer}
    for node in nodes:
        body = _definition(node, types, opsets)
        if body is None:
            continue
        body.domain, body.name = _DOMAIN, f"{node.op_type}_{len(proto.functions)}"
        del body.opset_import[:]
        body.opset_import.extend(proto.opset_import)
        node.domain, node.op_type = body.domain, body.name
        proto.functions.append(body)
    if _DOMAIN not in [o.domain for o in proto.opset_import]:
        proto.opset_import.add(domain=_DOMAIN, version=1)


def _definition(node: NodeProto, types: dict[str, TypeProto], opsets: dict[str, int]) -> FunctionProto | None:
    """Return ONNX's definition of a node's operator; None if not enough is known about the types of its inputs."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema: Any = onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    given = {a.name for a in node.attribute}
    defaults = (a.default_value for a in schema.attributes.values())
    node.attribute.extend(a for a in defaults if a.type != AttributeProto.UNDEFINED and a.name not in given)
    newest = opsets.get("", onnx.defs.onnx_opset_version())
    if versions := schema.function_opset_versions:
        data = schema.get_function_with_opset_version(max([v for v in versions if v <= newest] or [min(versions)]))
    else:
        versions = schema.context_dependent_function_opset_versions
        version = max([v for v in versions if v <= newest] or [min(versions)])
        known = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), known)
    body = FunctionProto()
    body.ParseFromString(data)
    return body if body.node else None


def _type_of(tensor: TensorProto) -> TypeProto:
    kind: TypeProto = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return kind


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and the nodes of graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _without_data(proto: ModelProto) -> tuple[ModelProto, dict[str, TensorProto]]:
    """Return a copy of a model without the elements of large initializers, and these initializers by name."""
    data = {t.name: t for t in proto.graph.initializer if t.ByteSize() > _LARGE}
    light = ModelProto()
    light.ir_version, light.producer_name = proto.ir_version, proto.producer_name
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    graph = light.graph
    graph.name = proto.graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, name).extend(getattr(proto.graph, name))
    for tensor in proto.graph.initializer:
        if tensor.name in data:
            entry = graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=TensorProto.EXTERNAL
            )
            entry.external_data.add(key="location", value="left out")
        else:
            graph.initializer.append(tensor)
    return light, data
