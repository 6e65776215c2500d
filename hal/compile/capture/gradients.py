"""Gradients of leaves in a captured step: those read, those replaced, and how to undo the replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.hal.layout import Spec


@dataclass(slots=True)
class LeafGradient:
    """Reads and writes of the `.grad` of one leaf by a step."""

    leaf: Any
    initial: Any
    """The gradient before the step, until `close`."""
    read: bool = False
    """True if the step read it. A gradient that existed is then passed with each run, at `position` among the inputs."""
    position: int | None = None
    spec: Spec | None = None
    """Of the gradient that was read; None if there was none."""
    final: Any = None
    """The gradient that the step leaves, if it replaces the first one."""
    replaced: bool = False

    def matches(self, leaf: Any) -> bool:
        """Return whether a leaf's gradient has the spec for which the step was recorded."""
        if not self.read:
            return True
        now = leaf.stored_grad
        return (None if now is None else now.ref.spec) == self.spec

    def close(self) -> None:
        """Note the gradient that the step leaves, and put the first one back: a run replaces it."""
        now = self.leaf.stored_grad
        self.replaced = now is not self.initial
        self.final = now if self.replaced else None
        self.leaf.stored_grad = self.initial
        self.initial = None

    def same_as(self, other: LeafGradient) -> bool:
        """Return whether another step does the same with the same leaf."""
        mine, theirs = ((g.read, g.position, g.spec, g.replaced) for g in (self, other))
        return self.leaf is other.leaf and mine == theirs


class GradientTable:
    """The leaves whose gradients a step reads or replaces while it is recorded, by identity."""

    def __init__(self) -> None:
        self._leaves: dict[int, LeafGradient] = {}
        self.initial: list[tuple[Any, Any]] = []
        """Leaves, and the gradients they had before."""

    def of(self, leaf: Any) -> LeafGradient:
        """The entry of a leaf; a new one remembers the gradient that is there now."""
        gradient = self._leaves.get(id(leaf))
        if gradient is None:
            gradient = self._leaves[id(leaf)] = LeafGradient(leaf, leaf.stored_grad)
            self.initial.append((leaf, leaf.stored_grad))
        return gradient

    def read(self, leaf: Any) -> LeafGradient | None:
        """Mark a leaf's gradient as read. Returns its entry if an earlier gradient has to be passed to the step."""
        if id(leaf) in self._leaves:
            return None
        gradient = self.of(leaf)
        gradient.read = True
        if gradient.initial is None:
            return None
        gradient.spec = gradient.initial.ref.spec
        return gradient

    def close(self) -> list[LeafGradient]:
        """Return the entries with their final gradients, and restore the gradients of the leaves."""
        gradients = list(self._leaves.values())
        for gradient in gradients:
            gradient.close()
        return gradients

    def restore(self) -> None:
        """Give all leaves the gradients they had before."""
        for leaf, gradient in self.initial:
            leaf.stored_grad = gradient
