"""Masks of attention in joint graphs, which backward graphs make again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def masks_of_attention(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the nodes that make masks of attention of constants and, by operations on bools, of other masks."""
    constant: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and _is_repeatable(node) and constant.issuperset(node.all_input_nodes):
            constant.add(node)
    pending = [mask for node in graph.nodes if (mask := _mask(node)) is not None]
    seen: set[torch.fx.Node] = set()
    while pending:
        node = pending.pop()
        joined = node.op == "call_function" and all(map(_is_bool, (node, *node.all_input_nodes)))
        if node not in seen and (node in constant or (joined and _is_repeatable(node))):
            seen.add(node)
            pending += node.all_input_nodes
            yield node


def _mask(node: torch.fx.Node) -> torch.fx.Node | None:
    """Return the mask of a call of attention."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or "scaled_dot_product" not in schema.name:
        return None
    names = [argument.name for argument in schema.arguments]
    given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
    mask = given.get("attn_bias", given.get("attn_mask"))
    return mask if isinstance(mask, torch.fx.Node) else None


def _is_bool(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def _is_repeatable(node: torch.fx.Node) -> bool:
    """Return whether an op computes the same again: it is not random and writes nothing."""
    schema = getattr(node.target, "_schema", None)
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return schema is not None and not schema.is_mutable and not random
