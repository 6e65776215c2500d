"""Merge calls of Python functions with equal operands: these are downloaded once, and the step waits once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.ops.layout.host_call import HOST_CALL, HostFunction, Results, called, name_of


class _Together:
    """Function that calls several functions with the same arguments, and returns the results of all."""

    def __init__(self, calls: Sequence[tuple[HostFunction, Results]]) -> None:
        self._calls = tuple(calls)
        names = [name for f, _ in calls for name in name_of(f).split(", ")]
        self.__qualname__ = ", ".join(dict.fromkeys(names))

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(x for function, results in self._calls for x in called(function, results, arrays))


def merge_host_calls(graph: Graph) -> Graph:
    """Replace the calls with equal operands by one call in the place of the first."""
    groups: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        if node.op is HOST_CALL:
            groups.setdefault((node.inputs, node.origin and node.origin.merge_key), []).append(node)
    if all(len(group) == 1 for group in groups.values()):
        return graph
    first = {group[0].outputs: group for group in groups.values()}
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        if node.op is not HOST_CALL:
            rewriter.keep(node)
        elif node.outputs in first:
            _merge(rewriter, first[node.outputs])
    return rewriter.finish()


def _merge(rewriter: GraphRewriter, group: Sequence[Node]) -> None:
    node = group[0]
    if len(group) == 1:
        rewriter.keep(node)
        return
    results = tuple(r for n in group for r in n.bound["results"])
    function = _Together([n.params for n in group])
    made = rewriter.add(HOST_CALL, rewriter.operands(node), (function, results), node.origin)
    for v, result in zip([v for n in group for v in n.outputs], made, strict=True):
        rewriter.replace_all_uses(v, result)
