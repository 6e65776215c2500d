"""The Ray engine: a group of actors, one per rank, that deliver arrays to each other's mailboxes.

    from polyhal.distributed import ray

    losses = ray.run(train, ranks=4, arguments=("text.txt",), options={"num_cpus": 2})

`train` calls `polyhal.distributed.init()` and continues as under MPI.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyhal.distributed import job
from polyhal.distributed.mailbox import Mailbox, MailboxGroup, Tag
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message

_GRACE = 5.0
"""Seconds in which the other ranks may end by themselves after the loss of one."""


class _Member:
    """The actor of a rank. Ray calls it on several threads: one runs the program, others deliver arrays."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.mailbox = Mailbox()
        self.peers: Sequence[Any] = ()
        self.nodes: Sequence[str] = ()

    def node(self) -> str:
        """Return the machine of this actor."""
        return str(_library().get_runtime_context().get_node_id())

    def join(self, peers: Sequence[Any], nodes: Sequence[str]) -> None:
        """Store the actors of all ranks and their machines."""
        self.peers, self.nodes = peers, nodes

    def deliver(self, source: int, tag: Tag, array: np.ndarray) -> None:
        """Receive an array from another rank."""
        self.mailbox.put(source, tag, array)

    def fail(self, reason: str) -> None:
        """End the job in this rank."""
        self.mailbox.fail(reason)

    def run(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Run the program of this rank."""
        _MEMBERS.append(self)
        try:
            return function(*arguments)
        finally:
            job.leave()
            _MEMBERS.clear()


_MEMBERS: list[_Member] = []
"""Rank of this process; empty if it is not a rank."""


class RayGroup(MailboxGroup):
    """The group of a rank that `run` has started."""

    def __init__(self, member: _Member) -> None:
        super().__init__(member.rank, len(member.peers), member.mailbox)
        self._member = member
        here = [rank for rank, node in enumerate(member.nodes) if node == member.nodes[self.rank]]
        self.local_rank, self.local_size = here.index(self.rank), len(here)

    def _deliver(self, to: int, tag: Tag, array: np.ndarray) -> None:
        self._member.peers[to].deliver.remote(self.rank, tag, array)

    def _deliver_to_all(self, tag: Tag, array: np.ndarray) -> None:
        stored = _library().put(array)  # one copy for all ranks
        for to in self._others():
            self._member.peers[to].deliver.remote(self.rank, tag, stored)

    def abort(self, reason: str) -> None:
        """See `ProcessGroup`."""
        for peer in self._member.peers:
            peer.fail.remote(f"rank {self.rank} {reason}")

    def close(self) -> None:
        """No-op: the actors end when `run` has all results."""


def connect() -> RayGroup:
    """Return the group of this actor. Raises ProcessGroupError outside of `run`."""
    if not _MEMBERS:
        raise ProcessGroupError(
            message(
                "init",
                "this process is not a rank of a Ray job",
                fix="start the ranks with polyhal.distributed.ray.run",
            )
        )
    return RayGroup(_MEMBERS[-1])


def started_by_ray() -> bool:
    """Return whether this process is a rank that `run` has started."""
    return bool(_MEMBERS)


def run(
    function: Callable[..., Any],
    ranks: int,
    arguments: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Call `function(*arguments)` in one actor per rank. Returns the results in the order of the ranks.

    `options` are options of Ray's actors, such as `num_cpus` and `num_gpus`. Ray is started if it is not running. If a rank
    fails, the others end within seconds, and ProcessGroupError reports its number and the cause.
    """
    ray = _library()
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    actor = ray.remote(_Member).options(**{"num_cpus": 0, **(options or {}), "max_concurrency": ranks + 4})
    members = [actor.remote(rank) for rank in range(ranks)]
    try:
        nodes = ray.get([m.node.remote() for m in members])
        ray.get([m.join.remote(members, nodes) for m in members])
        results = [m.run.remote(function, tuple(arguments)) for m in members]
        _await(results, members)
        return list(ray.get(results))
    finally:
        for member in members:
            ray.kill(member)


def _await(results: Sequence[Any], members: Sequence[Any]) -> None:
    """Wait until all ranks are done. Raises ProcessGroupError for the first that fails, after the others have ended."""
    ray = _library()
    left = list(results)
    while left:
        done, left = ray.wait(left)
        for result in done:
            try:
                ray.get(result)
            except ray.exceptions.RayError as error:
                rank = results.index(result)
                problem = f"rank {rank} {_how(error)}"
                for member in members:
                    member.fail.remote(problem)
                ray.wait(left, num_returns=len(left), timeout=_GRACE) if left else None
                fix = "the other ranks have ended; resume from the last checkpoint"
                raise ProcessGroupError(message("run", problem, fix=fix)) from error


def _how(error: Any) -> str:
    """Describe how a rank ended."""
    if isinstance(error, _library().exceptions.RayActorError):
        return "was killed or crashed: its actor died"
    cause = getattr(error, "cause", error)
    return f"failed: {type(cause).__name__}: {' '.join(str(cause).split())}"


def _library() -> Any:
    """Import the package `ray`. Raises ProcessGroupError."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ProcessGroupError(message("run", "ray is missing", fix='run pip install "polyhal[ray]"')) from error
