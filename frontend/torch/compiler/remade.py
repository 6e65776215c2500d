"""Values of joint graphs that backward graphs make again: small constants, and masks of attention.

Causal masks are recognized where they are made. Constants are computed once, when a program is compiled, so that making them
again costs nothing; all of them are, because PyTorch merges equal nodes, and one may be part of a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

_MAX_BYTES = 1 << 22
"""Of a constant that programs compute when they are compiled."""


def remade_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield small constants, and the nodes that make masks of attention of constants and, by operations on bools, of masks."""
    constant: set[torch.fx.Node] = set()
    small: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and _is_repeatable(node) and constant.issuperset(node.all_input_nodes):
            constant.add(node)
            if _bytes(node) <= _MAX_BYTES and small.issuperset(node.all_input_nodes):
                small.add(node)
                yield node
    pending = [mask for node in graph.nodes if (mask := _mask(node)) is not None]
    seen: set[torch.fx.Node] = set()
    while pending:
        node = pending.pop()
        joined = node.op == "call_function" and all(map(_is_bool, (node, *node.all_input_nodes)))
        if node not in seen and (node in constant or (joined and _is_repeatable(node))):
            seen.add(node)
            pending += node.all_input_nodes
            yield node


def _bytes(node: torch.fx.Node) -> float:
    """Return the bytes of a node's tensor; infinity for other results."""
    value = node.meta.get("val")
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else math.inf


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
