"""The group of a process that was started alone, so that a distributed program runs without a launcher, too."""

from __future__ import annotations

import numpy as np

from polyhal.distributed.movements import MovingGroup, Parts, Wait
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message


class SoloGroup(MovingGroup):
    """One rank, whose movements are copies."""

    rank = local_rank = 0
    size = local_size = 1

    def _start_all_to_all(self, source: np.ndarray, outgoing: Parts, target: np.ndarray, incoming: Parts) -> Wait:
        (size,), (start,) = outgoing
        target[incoming[1][0] : incoming[1][0] + size] = source[start : start + size]
        return _done

    def _start_all_gather(self, source: np.ndarray | None, target: np.ndarray, incoming: Parts) -> Wait:
        if source is not None:
            target[:] = source
        return _done

    def _start_broadcast(self, array: np.ndarray, root: int) -> Wait:
        return _done

    def _start_send(self, array: np.ndarray, to: int) -> Wait:
        raise ProcessGroupError(message("send", "there is no other rank", fix="start several with `polyhal launch`"))

    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        raise ProcessGroupError(message("receive", "there is no other rank", fix="start several with `polyhal launch`"))

    def abort(self, reason: str) -> None:
        """There is no other rank to tell."""

    def close(self) -> None:
        """There is nothing to leave."""


def _done() -> None:
    """Copies are done at once."""
