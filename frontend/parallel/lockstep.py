"""Replicas in lockstep: each runs until it exchanges tensors with the others, and resumes when all have reached that point.

A program runs its replicas one after the other, so that a layer in the middle of a model has no access to the intermediate
results of other replicas. Here each replica is a coroutine that pauses where it communicates. This is a rendezvous: when all
have paused, one collective serves them all, and they resume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError, message
from polyhal.nn.replica import running
from polyhal.parallel.group import Group
from polyhal.parallel.resumable import ResumableCall
from polyhal.tape.modes import set_grad_enabled
from polyhal.tensor import Tensor

_NONE = -1
"""Count for a device without a replica."""


class ReplicaError(PolyhalError, RuntimeError):
    """Replicas of one model take different paths."""


class ReplicaCall(NamedTuple):
    """A replica to run: a call, and a context in which the module has the tensors of the replica."""

    member: int
    """Index of the replica's device in the group."""
    call: Callable[[], Any]
    tensors: Callable[[], AbstractContextManager[object]]


class _Exchange(NamedTuple):
    """A collective that a replica requests, with the executor and gradient mode at that point."""

    name: str
    operand: Any
    axis: int
    executor: dispatch.Executor
    grad_enabled: bool


class _Replica:
    """A running replica. See `polyhal.nn.replica.Replica`."""

    def __init__(self, call: ReplicaCall, device: Device) -> None:
        self.member = call.member
        self.device = device
        self.asked: _Exchange | None = None
        self.answer: Any = None
        self._tensors = call.tensors
        self._region = dispatch.thread.region
        self.run = ResumableCall(lambda: self._run(call.call), [device])

    def resume(self) -> None:
        """Run to the next exchange, or to completion."""
        self.asked = None
        with self._tensors():
            self.run.resume()

    def all_gather(self, x: Tensor, axis: int = 0) -> Tensor:
        result: Tensor = self._ask("all_gather", x, axis % max(x.ndim, 1))
        return result

    def all_reduce(self, x: Tensor) -> Tensor:
        result: Tensor = self._ask("all_reduce", x)
        return result

    def all_counts(self, count: int) -> tuple[int, ...]:
        counts: tuple[int, ...] = self._ask("all_counts", count)
        return counts

    def _run(self, call: Callable[[], Any]) -> Any:
        with running(self), dispatch.default_device(self.device):
            return call()

    def _ask(self, name: str, operand: Tensor | int, axis: int = 0) -> Any:
        if dispatch.thread.region is not self._region:
            problem = "a checkpointed function exchanges tensors with other replicas, which are not recomputed with it"
            raise ReplicaError(message(name, problem, fix="leave the layer that does so out of the checkpoint"))
        self.asked = _Exchange(name, operand, axis, dispatch.thread.executor, dispatch.thread.grad_enabled)
        self.run.pause()
        answer, self.answer = self.answer, None
        return answer


def run_in_lockstep(group: Group, calls: Sequence[ReplicaCall]) -> list[Any]:
    """Run replicas of one module, each on a device of the group, and return their results.

    Devices without a replica contribute zeros or nothing to the exchanges. Raises the replicas' errors, and ReplicaError if
    they do not make the same exchanges.
    """
    replicas = [_Replica(call, group.devices[call.member]) for call in calls]
    try:
        while not all(r.run.done for r in replicas):
            for r in replicas:
                r.resume()
            if any(r.asked is not None for r in replicas):
                _exchange(group, replicas)
    finally:
        for r in replicas:
            r.run.abandon()
    return [r.run.result for r in replicas]


def _exchange(group: Group, replicas: Sequence[_Replica]) -> None:
    """Carry out the collective that all replicas requested."""
    asked = [r.asked for r in replicas]
    found = {None if a is None else (a.name, a.axis) for a in asked}
    first = asked[0]
    if len(found) > 1 or first is None:
        told = ", ".join(
            f"{r.device.name}: {'finished' if a is None else a.name}" for r, a in zip(replicas, asked, strict=True)
        )
        raise ReplicaError(
            message(
                "DataParallel", f"the replicas are at different points ({told})", expected="the same exchanges in each"
            )
        )
    answers: Sequence[Any]
    members = range(len(group.devices))
    given = {r.member: a.operand for r, a in zip(replicas, asked, strict=True) if a is not None}
    with dispatch.executing(first.executor), set_grad_enabled(first.grad_enabled):
        if first.name == "all_counts":
            counts = group.communicator.all_lengths([given.get(i, _NONE) for i in members])
            answers = [tuple(n for n in counts if n != _NONE)] * len(members)
        elif first.name == "all_reduce":
            answers = group.all_reduce([_or_zeros(given.get(i), first.operand, group.devices[i]) for i in members])
        else:
            empty = ops.narrow(first.operand.detach(), first.axis, 0, 0)
            parts = [given[i] if i in given else _or_zeros(None, empty, group.devices[i]) for i in members]
            answers = group.all_gather(parts, first.axis)
    for r in replicas:
        r.answer = answers[r.member]


def _or_zeros(x: Tensor | None, like: Tensor, device: Device) -> Tensor:
    """Return the send buffer of a device: zeros if it has no replica."""
    return ops.full(like.shape, 0, like.dtype, device=device) if x is None else x
