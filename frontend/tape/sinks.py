"""Where the gradients of a backward pass end up: in `.grad` of leaves, or in a list for the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.core import dispatch
from polyhal.hal.layout import extent
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.tape.hooks import after_accumulation, has_gradient_hooks, run_hooks
from polyhal.tape.ownership import is_exclusive, share, take
from polyhal.tape.paths import edge_key
from polyhal.tape.tape import edge_of

if TYPE_CHECKING:
    from polyhal.tape.tape import GradNode
    from polyhal.tensor import Tensor

_add, _copy = FUNCTIONS["add"], FUNCTIONS["copy"]
_ADD = OPS["add"]


class _HookedLeaves:
    """Gradients of leaves with hooks, summed over all paths: a hook is called once, with the whole gradient."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[Tensor, Tensor]] = {}

    def add(self, leaf: Tensor, g: Tensor) -> None:
        """Take the gradient of a leaf along one path."""
        share(g)
        known = self._sums.get(id(leaf))
        self._sums[id(leaf)] = (leaf, g if known is None else _add(known[1], g))

    def run(self) -> list[tuple[Tensor, Tensor]]:
        """Run the hooks. Returns the leaves, each with its gradient after them."""
        sums, self._sums = list(self._sums.values()), {}
        return [(leaf, run_hooks(leaf.hooks, g)) for leaf, g in sums]


class LeafAccumulator:
    """Adds gradients to `.grad` of every leaf.

    Without `create_graph` that happens in place, so the first gradient of a leaf must be in memory of its own. It is copied
    if its memory is shared (see `ownership.py`) or repeats elements.
    """

    def __init__(self, *, create_graph: bool) -> None:
        self._create_graph = create_graph
        self._hooked: dict[int, Tensor] = {}
        """Leaves with hooks that have received a gradient."""
        self._waiting = _HookedLeaves()

    def add_to_leaf(self, leaf: Tensor, g: Tensor) -> None:
        """Take the gradient of a leaf along one path."""
        if leaf.hooks:
            self._hooked[id(leaf)] = leaf
            if has_gradient_hooks(leaf):
                self._waiting.add(leaf, g)
                return
        self._accumulate(leaf, g)

    def run_hooks(self) -> None:
        """Run the hooks of leaves, whose gradients are complete, and add the gradients that they return."""
        for leaf, g in self._waiting.run():
            self._accumulate(leaf, g)

    def _accumulate(self, leaf: Tensor, g: Tensor) -> None:
        total = leaf.grad
        if self._create_graph:
            share(g)
            leaf.grad = g if total is None else _add(total, g)
        elif total is None:
            leaf.grad = g.detach() if take(g) else _copy(g.detach())
        elif is_exclusive(total):
            dispatch.apply_into(_ADD, (total, g), (), (total,))
        else:
            with dispatch.enabled_grad():  # an earlier pass may have put the sum so far on the tape
                leaf.grad = _add(total, g.detach())

    def finish(self) -> None:
        """Call the hooks that follow the accumulation of a leaf's gradient."""
        for leaf in self._hooked.values():
            after_accumulation(leaf)

    def visit(self, node: GradNode, grads: list[Tensor | None]) -> None:
        """No-op: only gradients of leaves are kept."""


class PartialCollector(LeafAccumulator):
    """Adds gradients to `.grad` of leaves, but collects the gradients of chosen leaves."""

    def __init__(self, collected: Sequence[Tensor]) -> None:
        super().__init__(create_graph=False)
        self._collected = [id(x) for x in collected]
        self._totals: dict[int, Tensor | None] = dict.fromkeys(self._collected)

    def gradients(self) -> list[Tensor | None]:
        """Return one gradient for each chosen leaf; None if there is no path."""
        return [self._totals[key] for key in self._collected]

    def add_to_leaf(self, leaf: Tensor, g: Tensor) -> None:
        """Take the gradient of a leaf along one path."""
        key = id(leaf)
        if key not in self._totals:
            super().add_to_leaf(leaf, g)
            return
        total = self._totals[key]
        self._totals[key] = g if total is None else _add(total, g)
        share(g)


def _dense(g: Tensor) -> Tensor:
    """Copy a gradient with repeated elements or gaps in memory: the caller may write to elements, or view them."""
    if g.is_contiguous or not g.size:
        return g
    low, high = extent(g.shape, g.strides)
    return g if high - low + 1 == g.size else _copy(g)


class GradientCollector:
    """Collects the gradients of chosen tensors, which need not be leaves."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._keys = [edge_key(edge_of(x)) for x in tensors]
        self.chosen = frozenset(self._keys)
        self._waiting = _HookedLeaves()
        self._totals: dict[tuple[int, int], Tensor] = {}

    def gradients(self) -> list[Tensor | None]:
        """Return one dense gradient, without repeated elements, for each tensor; None without a path."""
        return [None if g is None else _dense(g) for g in map(self._totals.get, self._keys)]

    def add_to_leaf(self, leaf: Tensor, g: Tensor) -> None:
        """Take the gradient of a leaf along one path."""
        if has_gradient_hooks(leaf):
            self._waiting.add(leaf, g)
        else:
            self._add(edge_key(leaf), g)

    def run_hooks(self) -> None:
        """Run the hooks of leaves, whose gradients are complete."""
        for leaf, g in self._waiting.run():
            self._add(edge_key(leaf), g)

    def visit(self, node: GradNode, grads: list[Tensor | None]) -> None:
        """Take the gradients of the results of a node."""
        for i, g in enumerate(grads):
            if g is not None:
                self._add((id(node), i), g)

    def _add(self, key: tuple[int, int], g: Tensor) -> None:
        if key in self.chosen:
            share(g)
            self._totals[key] = g if key not in self._totals else _add(self._totals[key], g)
