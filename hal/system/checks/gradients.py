"""Check `gradients`: no gradient is written before its consumer in the backward pass has read it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.core.memory.buffer import TAKEN
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref
from polyhal.hal.system.checks.finite import extent_in_bytes

if TYPE_CHECKING:
    from polyhal.hal.core.execution.executor import Array
    from polyhal.hal.core.execution.tape_hooks import TapeNode
    from polyhal.hal.core.memory.buffer import Buffer

_FIX = "do not change the gradients that hooks and custom functions receive; return new tensors"


class _Waiting(NamedTuple):
    """A gradient delivered to a node, and its version at that time."""

    node: TapeNode
    buffer: Buffer
    ref: Ref
    version: int


class WaitingGradients:
    """Gradients that a backward pass has delivered to nodes it has not visited yet."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], list[_Waiting]] = {}
        """Gradients by the identity of the node and the number of its output."""

    def replace(self, node: TapeNode, output: int, gradients: Iterable[Array]) -> None:
        """Record the gradients that an output of a node has received so far."""
        self._of[id(node), output] = [_Waiting(node, g.buffer, g.ref, g.buffer.version) for g in gradients]

    def release(self, node: TapeNode, outputs: int) -> None:
        """Remove the gradients of a visited node. Raises AutogradError if one was written since its delivery."""
        for output in range(outputs):
            for waiting in self._of.pop((id(node), output), ()):
                # A leaf may add in place to another part of the block.
                if waiting.buffer.version != waiting.version and getattr(waiting.buffer, "hold", None) != TAKEN:
                    written = f"version {waiting.version}, now {waiting.buffer.version}"
                    problem = f"its incoming gradient was written before it was used ({written}); {node.location}"
                    raise AutogradError(message(node.op.name, problem, fix=_FIX))

    def written_by(self, out: Ref) -> TapeNode | None:
        """Return the node with a pending gradient in memory that is about to be written; None if there is none."""
        first, end = extent_in_bytes(out)
        for waiting in [w for several in self._of.values() for w in several]:
            if waiting.ref.handle is out.handle:
                a, b = extent_in_bytes(waiting.ref)
                if a < end and first < b:
                    return waiting.node
        return None


class GradientCheck:
    """Raises AutogradError if an op writes to a gradient that another op has yet to read."""

    def __init__(self) -> None:
        self._passes: list[weakref.ref[WaitingGradients]] = []

    def watch(self) -> WaitingGradients:
        """Return the object that tracks a backward pass, which holds it as long as it runs."""
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
                    problem = f"it writes to a gradient that {node.op.name} has yet to read; {call.locate()}"
                    raise AutogradError(message(call.op.name, problem, fix=_FIX, device=call.device))
        yield


def watched_gradients() -> WaitingGradients | None:
    """Start to watch a backward pass if the check is enabled, else return None."""
    check = next((o for o in settings.observers if isinstance(o, GradientCheck)), None) if settings.observers else None
    return None if check is None else check.watch()
