"""Merging equal nodes of a joint graph before it is split into forward and backward graphs.

PyTorch's partitioner can do it, too, but loads the lowerings of PyTorch's own compiler for it, which takes as long as tracing
a small model.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from polyhal.torch.compiler import private


def merge_common_nodes(graph: torch.fx.Graph) -> None:
    """Replace each node that computes an earlier node's value. Results of the graph keep memory of their own."""
    kept = _memory(graph.output_node().all_input_nodes)
    first: dict[Hashable, torch.fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or private.is_random(node) or private.is_uninitialized(node):
            continue
        if node.is_impure() or private.writes_memory(node):
            first.clear()  # a later node may read other values
        elif not private.has_unbacked_size(node.meta.get("val")) and not _memory([node]) & kept:
            try:
                equal = first.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
            except TypeError:  # an argument that cannot be compared
                continue
            if equal is not node:
                node.replace_all_uses_with(equal)
                graph.erase_node(node)


def _memory(nodes: list[torch.fx.Node]) -> set[int]:
    """Return identities of the memory of tensors that nodes compute."""
    return {private.memory_identity(value) for n in nodes if isinstance(value := n.meta.get("val"), torch.Tensor)} - {0}


def _key(x: Any) -> Hashable:
    """Return a key that is equal for equal arguments of one type. Raises TypeError if there is none."""
    if isinstance(x, (list, tuple)):
        return (type(x), *map(_key, x))
    if isinstance(x, dict):
        return tuple((name, _key(value)) for name, value in x.items())
    if isinstance(x, slice):
        return (slice, _key(x.start), _key(x.stop), _key(x.step))
    if isinstance(x, (float, complex)):
        return (type(x), repr(x))  # 0.0 == -0.0, and NaN differs from itself
    if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise TypeError(f"{x} is compared by its value at run time")
    hash(x)
    return (type(x), x)
