"""A process group whose bytes Gloo moves, the library that PyTorch uses for tensors of the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import BroadcastOptions, ProcessGroupGloo, Store

from polyhal.distributed.movements import MovingGroup, Parts, Wait
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message


class GlooGroup(MovingGroup):
    """The processes of a rendezvous of PyTorch. They may be on several machines."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__()
        self.rank, self.size = rank, size
        self.local_rank = int(os.environ.get("LOCAL_RANK", rank))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        self._timeout = timeout
        self._gloo: Any = ProcessGroupGloo(store, rank, size, timeout)

    def _start_all_to_all(self, source: np.ndarray, outgoing: Parts, target: np.ndarray, incoming: Parts) -> Wait:
        given, taken = _together(source, outgoing), np.empty(sum(incoming[0]), np.uint8)
        work = self._start(self._gloo.alltoall_base, _tensor(taken), _tensor(given), [*incoming[0]], [*outgoing[0]])

        def wait() -> None:
            work()
            start = 0
            for size, place in zip(*incoming, strict=True):
                target[place : place + size] = taken[start : start + size]
                start += size

        return wait

    def _start_all_gather(self, source: np.ndarray | None, target: np.ndarray, incoming: Parts) -> Wait:
        size, start = incoming[0][self.rank], incoming[1][self.rank]
        own = target[start : start + size].copy() if source is None else source
        everyone = np.concatenate([own] * self.size)
        return self._start_all_to_all(
            everyone, ([size] * self.size, [size * i for i in range(self.size)]), target, incoming
        )

    def _start_broadcast(self, array: np.ndarray, root: int) -> Wait:
        options = BroadcastOptions()
        options.rootRank = root
        return self._start(self._gloo.broadcast, [_tensor(array)], options)

    def _start_send(self, array: np.ndarray, to: int) -> Wait:
        return self._start(self._gloo.send, [_tensor(array)], to, 0)

    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        return self._start(self._gloo.recv, [_tensor(array)], source, 0)

    # --- messages with PyTorch's tags: arguments are vectors of uint8 ------------------------------------------------

    def start_send(self, array: np.ndarray, to: int, tag: int) -> Wait:
        """Start to send to one rank, which receives arrays of one tag in order."""
        self._operation = "send"
        return self._start(self._gloo.send, [_tensor(array)], to, tag)

    def start_receive(self, array: np.ndarray, source: int | None, tag: int) -> tuple[Wait, Callable[[], int]]:
        """Start to receive from one rank, or from any. The second function returns the sender's rank once it has arrived."""
        self._operation = "receive"
        works: list[Any] = []

        def receive() -> Any:
            vector = [_tensor(array)]
            works.append(
                self._gloo.recv_anysource(vector, tag) if source is None else self._gloo.recv(vector, source, tag)
            )
            return works[0]

        return self._start(receive), lambda: works[0]._source_rank() if source is None else source

    def _start(self, function: Any, *arguments: Any) -> Wait:
        """Start a movement. Errors of Gloo are ProcessGroupError."""
        operation = self._operation
        try:
            work = function(*arguments)
        except RuntimeError as error:
            raise self._error(operation, error) from error

        def wait() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                raise self._error(operation, error) from error

        return wait

    def _error(self, operation: str, error: RuntimeError) -> ProcessGroupError:
        text = str(error)
        if "Timed out" in text or "timed out" in text:
            problem = f"rank {self.rank} has waited for {self._timeout.total_seconds():g} s for the other ranks"
            return ProcessGroupError(
                message(
                    operation,
                    problem,
                    expected="the same calls in the same order on all ranks",
                    fix="init_process_group(timeout=...) raises the limit",
                )
            )
        fix = "look at its output; all ranks end, and resume from the last checkpoint"
        return ProcessGroupError(message(operation, f"rank {self.rank} has lost another rank", fix=fix))

    def abort(self, reason: str) -> None:
        """End this rank's connections: the calls of the other ranks raise ProcessGroupError."""
        self._gloo.abort()

    def close(self) -> None:
        """Close the connections."""
        self._gloo.shutdown()


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor of bytes in the memory of an array."""
    return torch.from_numpy(array)


def _together(source: np.ndarray, parts: Parts) -> np.ndarray:
    """Return the parts of a vector one after another, without a copy if they already are."""
    starts = np.cumsum([0, *parts[0][:-1]])
    if all(size == 0 or start == place for size, start, place in zip(parts[0], starts, parts[1], strict=True)):
        return source[: sum(parts[0])]
    return np.concatenate([source[place : place + size] for size, place in zip(*parts, strict=True)])
