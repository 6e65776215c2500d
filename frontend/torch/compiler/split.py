"""A graph with ops that Polyhal does not implement: compiled parts with PyTorch's own ops in between."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from polyhal.torch.compiler import private
from polyhal.torch.compiler.interpreter import last_uses
from polyhal.torch.compiler.layouts import Symbols
from polyhal.torch.device import NAME
from polyhal.torch.fallback import note_cpu
from polyhal.torch.private import storage_key

Part = Callable[[torch.fx.GraphModule, Collection[int]], Any]
"""Constructor of a compiled graph from a graph and the positions of results that remain on the device."""


class SplitGraph:
    """Runs a graph node by node; most nodes are compiled parts."""

    def __init__(
        self, graph: torch.fx.GraphModule, unsupported: Mapping[torch.fx.Node, str], kept: Collection[int], part: Part
    ) -> None:
        outside = {n.name for n in unsupported}

        def is_inside(node: torch.fx.Node) -> bool:
            # Arguments are written at the end, after all their uses.
            writes = node.target is torch.ops.aten.copy_.default
            return node.op == "call_function" and node.name not in outside and not writes

        self._graph = private.split_graph(_copied(graph), is_inside)
        nodes = [n for n in self._graph.graph.nodes if n.op == "call_module"]
        modules = {n: getattr(self._graph, str(n.target)) for n in nodes}
        self._single = {n for n, m in modules.items() if isinstance(_returned(m), torch.fx.Node)}
        self._parts = {n: part(m, self._kept(n, kept)) for n, m in modules.items()}
        self._last = last_uses(self._graph.graph)

    def __call__(self, arguments: list[Any], symbols: Symbols) -> list[Any]:
        """Run the graph. Empties the list of arguments."""
        env: dict[torch.fx.Node, Any] = {}
        writes: dict[torch.Tensor, torch.Tensor] = {}
        given = iter(list(arguments))
        arguments.clear()
        for node in self._graph.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(given)
            elif node.op == "output":
                _write(writes)
                return _tuple(pytree.tree_map(lambda x: env[x] if isinstance(x, torch.fx.Node) else x, node.args[0]))
            elif node.op == "get_attr":
                env[node] = functools.reduce(getattr, str(node.target).split("."), self._graph)
            elif node.op == "call_module":
                made = self._parts[node]([env[x] for x in node.args], symbols)
                env[node] = made[0] if node in self._single else made
            elif node.target is torch.ops.aten.copy_.default:
                # Later parts may still read the argument: parts are ordered by data flow only.
                place, value = node.args[:2]
                writes[env[place]] = env[value]
                env[node] = env[place]
            else:
                env[node] = _computed(node, env)
                symbols.bind(node.meta.get("val"), env[node])
            for done in self._last.get(node, ()):
                del env[done]
        raise AssertionError("a graph without an output")

    def _kept(self, node: torch.fx.Node, kept: Collection[int]) -> set[int]:
        """Return the results of a part that neither PyTorch's ops nor the program read."""
        returned = _returned(self._graph)

        def stays(result: torch.fx.Node) -> bool:
            places = [i for i, x in enumerate(_tuple(returned)) if x is result]
            others = [u for u in result.users if u.op not in ("call_module", "output")]
            return not others and all(i in kept for i in places)

        if node in self._single:
            return {0} if stays(node) else set()
        return {int(u.args[1]) for u in node.users if u.target is operator.getitem and stays(u)}  # type: ignore[arg-type]


def _write(writes: dict[torch.Tensor, torch.Tensor]) -> None:
    """Assign new values to arguments, all at once: a value may be a view of another argument."""
    changed = {storage_key(x) for x in writes}
    values = [value.clone() if storage_key(value) in changed else value for value in writes.values()]
    for x, value in zip(writes, values, strict=True):
        x.copy_(value)


def _computed(node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
    """Run one of PyTorch's ops on tensors on the devices that PyTorch assumes."""
    on_device = False

    def filled(x: torch.fx.Node) -> Any:
        nonlocal on_device
        value, fake = env[x], x.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == NAME:
            if isinstance(fake, torch.Tensor) and fake.device.type != NAME:
                return value.to(fake.device)
            on_device = True
        return value

    args: Any = torch.fx.node.map_arg(node.args, filled)
    kwargs: Any = torch.fx.node.map_arg(node.kwargs, filled)
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    # On the device, the fallback counts its calls itself. Ops that only read or check a number do not count as moved work.
    made = [x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]
    on_device = on_device or any(x.device.type == NAME for x in made)
    if isinstance(target, torch._ops.OpOverload) and made and not on_device:
        note_cpu(str(target), 0)
    return target(*args, **kwargs)


def _copied(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy of a graph that can be changed; nodes keep their names."""
    nodes = torch.fx.Graph()
    nodes.output(nodes.graph_copy(graph.graph, {}))
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    nodes.output_node().meta = dict(output.meta)
    return torch.fx.GraphModule(graph, nodes)


def _returned(graph: torch.fx.GraphModule) -> Any:
    return graph.graph.output_node().args[0]


def _tuple(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]
