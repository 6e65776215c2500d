"""Links between lanes: where the host threads of several devices wait for each other."""

from __future__ import annotations

from typing import Any, Protocol

COLLECTIVES = "collectives"
"""The key of their lane."""
LaneKey = Any
"""What tells lanes apart: a device; the devices of copies between peers; or that of the collectives."""


class LaneStoppedError(Exception):
    """What a lane waits for will not come, because another lane has failed."""


class LaneLink(Protocol):
    """What carries values from lane to lane. Used once in each run of a step."""

    def stop(self) -> None:
        """Let all that wait go on with LaneStoppedError. Called when a lane has failed."""

    def clear(self) -> None:
        """Forget what is under way, when all lanes have stopped."""

    def is_behind(self, lane: LaneKey) -> bool:
        """Whether devices of other lanes have begun to wait for what that of this lane has not begun."""

    def waited(self, lane: LaneKey) -> int:
        """Nanoseconds that a lane has waited here in all runs."""
