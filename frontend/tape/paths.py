"""The part of the tape that a pass follows if it collects the gradients of chosen tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from polyhal.tape.tape import Edge, GradNode

if TYPE_CHECKING:
    from collections.abc import Collection


def edge_key(edge: Edge) -> tuple[int, int]:
    """Return the identity of an edge: the node and the number of its output, or the leaf and -1."""
    return (id(edge[0]), edge[1]) if isinstance(edge, tuple) else (id(edge), -1)


class Paths:
    """The paths from the results to chosen tensors. Other nodes are not run, and may have been freed."""

    def __init__(self, roots: Iterable[Edge], chosen: Collection[tuple[int, int]]) -> None:
        """`chosen` are the keys of the edges where gradients are collected."""
        self._chosen = chosen
        self._leads: set[int] = set()
        for node in sorted(_below(roots), key=lambda n: n.order):  # parents first
            if any(self.follows(p) for p in node.parents):
                self._leads.add(id(node))

    def follows(self, edge: Edge | None) -> bool:
        """Return whether a gradient is needed along an edge."""
        return edge is not None and (
            edge_key(edge) in self._chosen or (isinstance(edge, tuple) and self.leads(edge[0]))
        )

    def leads(self, node: GradNode) -> bool:
        """Return whether a node depends on a chosen tensor, so that its gradient rule must run."""
        return id(node) in self._leads


def _below(roots: Iterable[Edge]) -> set[GradNode]:
    """Return all nodes that the results depend on."""
    found: set[GradNode] = set()
    waiting = [edge[0] for edge in roots if isinstance(edge, tuple)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [p[0] for p in node.parents if isinstance(p, tuple)]
    return found
