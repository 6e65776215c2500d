"""Collectives in line: every device carries out what is its own of a collective, in order with its other work.

The devices wait for each other, their hosts do not. So once one of them has begun, all others have to, whatever happens to the
run: else it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polyhal.hal.collectives.collective import Collective
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.layout import Ref
from polyhal.hal.transfers.lane_link import LaneKey

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream


class InLineCall:
    """One collective of a step."""

    def __init__(self, collective: Collective, communicator: Communicator) -> None:
        """The communicator is `in_line`."""
        self._collective = collective
        self._communicator = communicator
        members = len(communicator.devices)
        self._alone = [False] * members
        """Which members a lane of their own runs at this moment."""
        self._begun = [0] * members
        """How many times each member has begun, over all runs in lanes."""
        self._operands: dict[int, tuple[Ref | None, Ref | None]] = {}
        """Of members that have come, where one thread does all in turn."""

    def take_part(self, i: int, source: Ref | None, target: Ref | None) -> None:
        """Let member `i` begin. Where one thread does all in turn, all begin with the last of them."""
        if self._alone[i] or len(self._alone) == 1:
            self._communicator.run_member(i, self._collective, source, target)
            return
        self._operands[i] = source, target
        if len(self._operands) == len(self._alone):
            operands, self._operands = self._operands, {}
            sources, targets = zip(*[operands[m] for m in range(len(operands))], strict=True)
            self._communicator.run(self._collective, sources, targets)

    def in_lane(self, i: int, run: Callable[[], None], streams: Mapping[Device, Stream]) -> None:
        """Let member `i` begin on a lane of its own, where `run` calls `take_part`."""
        self._alone[i] = True
        try:
            run()
        finally:
            self._alone[i] = False
        self._begun[i] += 1

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """See `Communicator`."""
        return self._communicator.turn

    def is_behind(self, lane: LaneKey) -> bool:
        """See `LaneLink`."""
        return self._begun[self._communicator.devices.index(lane)] < max(self._begun)

    def stop(self) -> None:
        """No lane waits here."""

    def clear(self) -> None:
        """Forget what has begun."""
        self._operands.clear()
        self._begun = [0] * len(self._begun)

    def waited(self, lane: LaneKey) -> int:
        """No lane waits here."""
        return 0


__all__ = ["InLineCall"]
