"""A graph as text, one line for each input, node and update. `parsing` reads it back.

    %0: float32[2, 3]  # argument 0
    %1: float32[3]  # mlp.bias
    on opencl:0
    %2 = add(%0, %1): float32[2, 3]  # mlp
    return %2

A node's line gives its op, operands and parameters, and what its results are; the comment is the path of its module.
`over [0]` says for each result the operand in whose memory it is to be made, `again 1` that the node is part of
recomputation 1. A line `on` names the device of the nodes that follow, and settings other than the usual ones. `%1 <- %7`
says that value 7 replaces input 1 when the graph has run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Spec, contiguous_strides
from polyhal.hal.ops.opdef import Value
from polyhal.hal.settings.state import Settings

if TYPE_CHECKING:
    from polyhal.hal.ir.graph import Graph, Node, Origin

NOWHERE = "on no device"
"""Before nodes without an origin that follow nodes with one."""


def write(graph: Graph) -> str:
    """The text of `graph`."""
    lines = [
        f"%{i}: {spec_text(s)}{comment(graph.names.get(i, ''))}" for i, s in enumerate(graph.specs[: graph.inputs])
    ]
    place = NOWHERE
    for node in graph.nodes:
        now = place_text(node.origin)
        if now != place:
            lines.append(now)
            place = now
        lines.append(node_text(graph, node))
    for i, value in graph.updates.items():
        lines.append(f"%{i} <- %{value}{comment(graph.names.get(i, ''))}")
    lines.append("return " + ", ".join(f"%{i}" for i in graph.outputs))
    return "\n".join(lines)


def node_text(graph: Graph, node: Node) -> str:
    """One node's line."""
    given = [operand_text(x) for x in node.inputs]
    given += [f"{name}={value!r}" for name, value in node.op.bind(node.params).items()]
    made = ", ".join(f"%{i}" for i in node.outputs)
    kinds = ", ".join(spec_text(graph.specs[i]) for i in node.outputs)
    over = f" over {list(node.replaces)}" if node.replaces else ""
    again = f" again {node.origin.again}" if node.origin is not None and node.origin.again else ""
    module = node.origin.module if node.origin is not None else ""
    return f"{made} = {node.op.name}({', '.join(given)}): {kinds}{over}{again}{comment(module)}"


def operand_text(x: Any) -> str:
    """A value by its number, or a literal."""
    return f"%{x.index}" if isinstance(x, Value) else repr(x)


def spec_text(spec: Any) -> str:
    """What a value is: `float32[2, 3] strides [1, 2] unaligned`, `int64 number`, or `none` for an absent input."""
    if spec is None:
        return "none"
    if not isinstance(spec, Spec):
        return f"{spec.dtype.name} number"
    text = f"{spec.dtype.name}{list(spec.shape)}"
    if spec.strides != contiguous_strides(spec.shape):
        text += f" strides {list(spec.strides)}"
    return text if spec.aligned else f"{text} unaligned"


def place_text(origin: Origin | None) -> str:
    """A line that says where the nodes after it run."""
    if origin is None:
        return NOWHERE
    usual = Settings.named(Settings().key)
    changed = [f", {n} {v}" for n, v in Settings.named(origin.settings).items() if v != usual[n]]
    return f"on {origin.device}{''.join(changed)}"


def comment(text: str) -> str:
    """A name at the end of a line; quoted where it could be taken for something else."""
    if not text:
        return ""
    plain = text.isprintable() and text == text.strip() and not text.startswith('"')
    return f"  # {text if plain else json.dumps(text)}"
