"""The group of a process without a launcher, so that distributed programs also run as one process."""

from __future__ import annotations

import numpy as np

from polyhal.distributed.movements import MovingGroup, Parts, Wait
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message


class SoloGroup(MovingGroup):
    """One rank. Movements are copies."""

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
        raise ProcessGroupError(
            message("send", "this job has only one rank", fix="start several with `polyhal launch`")
        )

    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        raise ProcessGroupError(
            message("receive", "this job has only one rank", fix="start several with `polyhal launch`")
        )

    def abort(self, reason: str) -> None:
        """No-op: there are no other ranks."""

    def close(self) -> None:
        """No-op: there are no other ranks."""


def _done() -> None:
    """No-op: copies complete when they start."""
