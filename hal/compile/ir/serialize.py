"""Converts a graph to plain data for JSON, and back. Data read back is checked against the rules of its ops (see `builder`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from polyhal.hal.compile.ir.builder import GraphBuilder
from polyhal.hal.compile.ir.graph import Graph, NodeOrigin, Operand, Value
from polyhal.hal.core.execution.location import UNKNOWN, SourceLocation
from polyhal.hal.core.settings.state import Precision, Settings
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import ScalarSpec, Spec, contiguous_strides

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def describe(graph: Graph) -> dict[str, Any]:
    """`graph` as dictionaries, lists, strings and numbers.

    Places (a device with its settings) are listed once and referred to by number. Operands are {"value": n} or literals;
    results are numbered after the inputs.
    """
    places: dict[tuple[Any, ...], int] = {}
    nodes = []
    for node in graph.nodes:
        entry: dict[str, Any] = {
            "op": node.op.name,
            "inputs": [{"value": x.index} if isinstance(x, Value) else _plain(x) for x in node.inputs],
            "params": {name: _plain(value) for name, value in node.bound.items()},
            "outputs": [spec_data(graph.specs[v]) for v in node.outputs],
        }
        if node.replaces:
            entry["over"] = list(node.replaces)
        if node.origin is not None:
            entry["place"] = places.setdefault(node.origin[:2], len(places))
            if node.origin.module:
                entry["module"] = node.origin.module
            if node.origin.checkpoint:
                entry["again"] = node.origin.checkpoint
        nodes.append(entry)
    return {
        "places": [{"device": str(device), **Settings.named(key)} for device, key in places],
        "inputs": [
            {"spec": spec_data(s), **({"name": graph.names[i]} if i in graph.names else {})}
            for i, s in enumerate(graph.specs[: graph.inputs])
        ],
        "nodes": nodes,
        "outputs": list(graph.outputs),
        "updates": [[i, v] for i, v in graph.updates.items()],
    }


def build(data: Any, source: str, device: Callable[[str], Device]) -> Graph:
    """The graph that `describe` turned into `data`; `device` opens devices by name, `source` names the data in messages.

    Raises CorruptFileError, naming the node, for data that is no graph of declared ops.
    """
    builder = GraphBuilder(source)
    with builder.reading("the places"):
        places = [(device(str(p["device"])), _settings(p)) for p in data["places"]]
    with builder.reading("the inputs"):
        for entry in data["inputs"]:
            builder.input(_spec(entry["spec"]), str(entry.get("name", "")))
    with builder.reading("the list of nodes"):
        nodes = list(data["nodes"])
    for number, entry in enumerate(nodes):
        where = f"node {number}"
        with builder.reading(where):
            where = f"node {number} ({entry['op']}, %{len(builder.graph.specs)})"
        with builder.reading(where):
            origin = _origin(places, entry) if "place" in entry else None
            results = [_spec(s) for s in entry["outputs"]]
            if not all(isinstance(r, Spec) for r in results):
                raise ValueError("a result that is no tensor")
            builder.node(
                where,
                entry["op"],
                [_operand(x) for x in entry["inputs"]],
                {name: _value(x) for name, x in entry["params"].items()},
                results,  # type: ignore[arg-type]
                origin,
                tuple(_whole(entry.get("over", []))),
            )
    with builder.reading("the results"):
        builder.outputs(_whole(data["outputs"]))
    with builder.reading("the updates"):
        for i, v in data["updates"]:
            builder.update(*_whole([i, v]))
    return builder.graph


def spec_data(spec: Any) -> Any:
    """A spec as plain data; None for an absent input."""
    if spec is None:
        return None
    if not isinstance(spec, Spec):
        return {"number": spec.dtype.name}
    data: dict[str, Any] = {"dtype": spec.dtype.name, "shape": list(spec.shape)}
    if spec.strides != contiguous_strides(spec.shape):
        data["strides"] = list(spec.strides)
    if not spec.aligned:
        data["aligned"] = False
    return data


def _spec(data: Any) -> Spec | ScalarSpec | None:
    if data is None:
        return None
    if "number" in data:
        return ScalarSpec(as_dtype(data["number"]))
    shape = tuple(_whole(data["shape"]))
    strides = tuple(_whole(data["strides"])) if "strides" in data else contiguous_strides(shape)
    if len(strides) != len(shape) or min(shape, default=0) < 0:
        raise ValueError(f"shape {list(shape)} with strides {list(strides)}")
    return Spec(as_dtype(data["dtype"]), shape, strides, data.get("aligned", True) is not False)


def _origin(places: Sequence[tuple[Device, tuple[Any, ...]]], entry: Mapping[str, Any]) -> NodeOrigin:
    number, again = _whole([entry["place"], entry.get("again", 0)])
    if number < 0:
        raise IndexError(f"place {number}")
    device, settings = places[number]
    location = entry.get("location")  # only in data that was not in a file
    known = location if isinstance(location, SourceLocation) else UNKNOWN
    return NodeOrigin(device, settings, str(entry.get("module", "")), again, known)


def _settings(data: Mapping[str, Any]) -> tuple[Any, ...]:
    precision, deterministic = data["precision"], data["deterministic"]
    if precision not in get_args(Precision) or type(deterministic) is not bool:
        raise ValueError(f"settings precision={precision!r}, deterministic={deterministic!r}")
    return (precision, deterministic)


def _plain(value: Any) -> Any:
    """A parameter or literal: tuples become lists; dtypes and non-finite numbers become tagged dictionaries."""
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _value(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_value(v) for v in data)
    if isinstance(data, Mapping):
        if set(data) == {"dtype"}:
            return as_dtype(data["dtype"])
        if set(data) == {"float"}:
            return _FLOATS[data["float"]]
        raise ValueError(f"an unknown kind of value, {dict(data)}")
    return data


def _operand(data: Any) -> Operand:
    if isinstance(data, Mapping) and set(data) == {"value"}:
        (number,) = _whole([data["value"]])
        return Value(number)
    value = _value(data)
    if value is not None and type(value) not in (bool, int, float):
        raise ValueError(f"an operand is {value!r}; expected a value or a number")
    return value  # type: ignore[no-any-return]


def _whole(numbers: Sequence[int]) -> list[int]:
    if not isinstance(numbers, (list, tuple)) or any(type(n) is not int for n in numbers):
        raise ValueError(f"found {numbers!r}; expected whole numbers")
    return list(numbers)
