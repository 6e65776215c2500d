"""Prints a graph as text, one line for each input, node and update; `parse` reads it back.

    %0: float32[2, 3]  # argument 0
    %1: float32[3]  # mlp.bias
    on opencl:0
    %2 = add(%0, %1): float32[2, 3]  # mlp
    return %2

The line of a node holds its op, operands and parameters, and the specs of its results; the comment is the path of its
module. `over [0]` names, per result, the operand whose buffer it may reuse; `again 1` marks a node of checkpointed region 1.
A line `on` names the device of the nodes that follow, and the settings that differ from the defaults. `%1 <- %7` means that
value 7 replaces input 1 after a run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Value
from polyhal.hal.core.settings.state import Settings
from polyhal.hal.layout import Spec, contiguous_strides

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node, NodeOrigin

NOWHERE = "on no device"
"""Heads nodes without an origin that follow nodes with one."""


def write(graph: Graph) -> str:
    """The text of `graph`."""
    lines = [
        f"%{i}: {spec_text(s)}{comment(graph.names.get(i, ''))}" for i, s in enumerate(graph.specs[: graph.inputs])
    ]
    current = NOWHERE
    for node in graph.nodes:
        place = place_text(node.origin)
        if place != current:
            lines.append(place)
            current = place
        lines.append(node_text(graph, node))
    for i, value in graph.updates.items():
        lines.append(f"%{i} <- %{value}{comment(graph.names.get(i, ''))}")
    lines.append("return " + ", ".join(f"%{i}" for i in graph.outputs))
    return "\n".join(lines)


def node_text(graph: Graph, node: Node) -> str:
    """The line of one node."""
    arguments = [operand_text(x) for x in node.inputs]
    arguments += [f"{name}={value!r}" for name, value in node.bound.items()]
    outputs = ", ".join(f"%{i}" for i in node.outputs)
    specs = ", ".join(spec_text(graph.specs[i]) for i in node.outputs)
    over = f" over {list(node.replaces)}" if node.replaces else ""
    again = f" again {node.origin.checkpoint}" if node.origin is not None and node.origin.checkpoint else ""
    module = node.origin.module if node.origin is not None else ""
    return f"{outputs} = {node.op.name}({', '.join(arguments)}): {specs}{over}{again}{comment(module)}"


def operand_text(x: Any) -> str:
    """A value by its number, or a literal."""
    return f"%{x.index}" if isinstance(x, Value) else repr(x)


def spec_text(spec: Any) -> str:
    """The spec of a value: `float32[2, 3] strides [1, 2] unaligned`, `int64 number`, or `none` for an absent input."""
    if spec is None:
        return "none"
    if not isinstance(spec, Spec):
        return f"{spec.dtype.name} number"
    text = f"{spec.dtype.name}{list(spec.shape)}"
    if spec.strides != contiguous_strides(spec.shape):
        text += f" strides {list(spec.strides)}"
    return text if spec.aligned else f"{text} unaligned"


def place_text(origin: NodeOrigin | None) -> str:
    """The line that names the device and settings of the nodes after it."""
    if origin is None:
        return NOWHERE
    default = Settings.named(Settings().result_key)
    changed = [f", {n} {v}" for n, v in Settings.named(origin.settings).items() if v != default[n]]
    return f"on {origin.device}{''.join(changed)}"


def comment(text: str) -> str:
    """A name at the end of a line, quoted where it could be misread."""
    if not text:
        return ""
    plain = text.isprintable() and text == text.strip() and not text.startswith('"')
    return f"  # {text if plain else json.dumps(text)}"
