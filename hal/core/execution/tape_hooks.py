"""Hooks of the tape, for executors that locate ops in the user's program."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from polyhal.hal.core.execution.location import SourceLocation
    from polyhal.hal.ops.opdef import OpDef


class TapeNode(Protocol):
    """A node of the frontend's tape, as far as executors use it."""

    op: OpDef
    location: SourceLocation
    """Call of the op in the user's program; `UNKNOWN` unless an executor notes it."""


class TapeHooks(Protocol):
    """Callbacks of the tape. Without them, nodes have no location and gradients belong to no op."""

    def add_to_tape(self, node: TapeNode) -> None:
        """Note a node that was just made for the tape."""
        ...

    def differentiating(self) -> AbstractContextManager[object]:
        """Enclose one walk over the tape."""
        ...

    def differentiate(self, node: TapeNode) -> None:
        """Begin with the gradient of a node, within `differentiating`."""
        ...
