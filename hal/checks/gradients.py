"""Check `gradients`: no gradient is written while an op of the backward pass still waits for it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.checks.finite import extent_in_bytes
from polyhal.hal.checks.observer import ObservedCall
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref
from polyhal.hal.memory.buffer import TAKEN
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.dispatch.executor import Array, TapeNode
    from polyhal.hal.memory.buffer import Buffer

_FIX = "leave the gradients that hooks and custom functions get as they are, and return new tensors"


class _Waiting(NamedTuple):
    """A gradient on its way to a node, as it was when it was handed on."""

    node: TapeNode
    buffer: Buffer
    ref: Ref
    version: int


class WaitingGradients:
    """The gradients that one backward pass has handed on to nodes that it has not visited yet."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], list[_Waiting]] = {}
        """By the identity of the node and the number of its output."""

    def replace(self, node: TapeNode, output: int, gradients: Iterable[Array]) -> None:
        """Note the gradients that wait for an output of a node now."""
        self._of[id(node), output] = [_Waiting(node, g.buffer, g.ref, g.buffer.version) for g in gradients]

    def release(self, node: TapeNode, outputs: int) -> None:
        """Take out the gradients of a node that is visited. Raises AutogradError if one was written in between."""
        for output in range(outputs):
            for waiting in self._of.pop((id(node), output), ()):
                # A leaf may add in place to another part of the block.
                if waiting.buffer.version != waiting.version and getattr(waiting.buffer, "hold", None) != TAKEN:
                    written = f"version {waiting.version}, now {waiting.buffer.version}"
                    problem = f"its incoming gradient was written before it was used ({written}); {node.location}"
                    raise AutogradError(message(node.op.name, problem, fix=_FIX))

    def written_by(self, out: Ref) -> TapeNode | None:
        """The node that waits for a gradient in memory that is about to be written."""
        first, end = extent_in_bytes(out)
        for waiting in [w for several in self._of.values() for w in several]:
            if waiting.ref.handle is out.handle:
                a, b = extent_in_bytes(waiting.ref)
                if a < end and first < b:
                    return waiting.node
        return None


class GradientCheck:
    """Raises AutogradError if an op writes to a gradient that another waits for."""

    def __init__(self) -> None:
        self._passes: list[weakref.ref[WaitingGradients]] = []

    def watch(self) -> WaitingGradients:
        """Begin with a backward pass, which holds the object as long as it runs."""
        waiting = WaitingGradients()
        self._passes = [*(p for p in self._passes if p() is not None), weakref.ref(waiting)]
        return waiting

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Check the memory that a call is about to write."""
        for waiting in [p() for p in self._passes]:
            for out in call.outputs if waiting is not None else ():
                node: Any = waiting.written_by(out) if waiting is not None else None
                if node is not None:
                    problem = f"it writes to a gradient that {node.op.name} still waits for; {call.locate()}"
                    raise AutogradError(message(call.op.name, problem, fix=_FIX, device=call.device))
        yield


def watched_gradients() -> WaitingGradients | None:
    """Begin to watch a backward pass if the check is in force."""
    check = next((o for o in settings.observers if isinstance(o, GradientCheck)), None) if settings.observers else None
    return None if check is None else check.watch()
