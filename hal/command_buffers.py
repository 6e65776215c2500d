"""Optional protocol of devices that record launches once and submit them any number of times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class BindingSlot:
    """A placeholder for memory that is bound at each submission of a command buffer: arguments and results of a step.

    A `Ref` whose handle is a slot has an offset relative to the slot's own `offset`. Offsets count elements.
    """

    __slots__ = ("handle", "offset")

    def __init__(self) -> None:
        self.handle: Any = None
        self.offset = 0


class RecordedLaunch(NamedTuple):
    """One launch in a command buffer: the position of the call that made it, and the name of its kernel."""

    call: int
    kernel: str


class CommandBuffer(Protocol):
    """Launches in the device's own form, which can be submitted any number of times."""

    @property
    def launches(self) -> Sequence[RecordedLaunch]:
        """The launches of one submission, in the order in which `SupportsProfiling` lists them."""

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Enqueue the launches once, with the current values of runtime scalars.

        `rebound` lists the slots whose memory has changed since the last submission.
        """


@runtime_checkable
class SupportsCommandBuffers(Protocol):
    """Recording of launches for repeated submission.

    A captured step records its launches and its calls of core members when it is prepared, and submits them at each replay. On
    other devices a replay calls them one by one.
    """

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        """Run `calls` and record their launches, in order, instead of enqueueing them.

        The calls use launches and the core members, from `fill` to `scatter_add`; a call of a single launch is a
        `functools.partial` of it, so that a backend finds the operands and the sizes of the workspace. A `BindingSlot` may
        take the place of a handle, and in launches and `fill` a `RuntimeScalar` the place of a number, for values that
        change between submissions.
        """
