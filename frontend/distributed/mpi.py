"""The MPI engine, through mpi4py. MPI moves bytes; `MovingGroup` reduces them.

Every call is non-blocking and polled, so that a rank that waits for a lost one notices the loss.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from polyhal.distributed.environment import mpi_place, slurm_tasks
from polyhal.distributed.hub import Hub
from polyhal.distributed.movements import MovingGroup, Parts, Wait
from polyhal.distributed.watch import Watch
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.core.settings import env
from polyhal.hal.errors import message

_YIELDING = 0.02
"""Seconds for which a waiting rank only yields its core; afterwards it sleeps between polls."""
_SLEEP = 1e-4
_SEGMENT = re.compile(r"/dev/shm/mpich_shm_\w+")
_yield = getattr(os, "sched_yield", partial(time.sleep, 0))


def connect() -> MPIGroup:
    """Return the group of all processes that MPI started. Raises ProcessGroupError without mpi4py or an MPI library."""
    return MPIGroup()


class MPIGroup(MovingGroup):
    """All processes of `MPI.COMM_WORLD`."""

    def __init__(self) -> None:
        """Raises ProcessGroupError, also if MPI's processes differ from the launched ones."""
        super().__init__()
        self._mpi = _library()
        _ignore_notices()
        world = self._mpi.COMM_WORLD.Dup()
        self._world = world
        self.rank: int = world.Get_rank()
        self.size: int = world.Get_size()
        _check_place(self.size)
        local = world.Split_type(self._mpi.COMM_TYPE_SHARED, self.rank)
        self.local_rank: int = local.Get_rank()
        self.local_size: int = local.Get_size()
        local.Barrier()  # afterwards all ranks of the machine have opened the shared memory
        if self.local_rank == 0:
            _unlink_shared_memory()
        local.Free()
        self._hub: Hub | None = None
        self.watch = self._watch()

    def _watch(self) -> Watch:
        """Connect to the launcher's hub, or to a hub in rank 0."""
        address = env.hub()
        if address is not None:
            known = launched_watch()
            return known if known is not None else Watch(address, self.rank)
        machines = set(self._world.allgather(socket.gethostname()))
        if self.rank == 0:
            self._hub = Hub(self.size, everywhere=len(machines) > 1)
        address = json.loads(self._world.bcast(json.dumps(self._hub.address if self._hub else None)))
        return Watch(address, self.rank, hub_in_rank_0=True)

    def _start_all_to_all(self, source: np.ndarray, outgoing: Parts, target: np.ndarray, incoming: Parts) -> Wait:
        byte = self._mpi.BYTE
        return self._wait_for(self._world.Ialltoallv([source, outgoing, byte], [target, incoming, byte]))

    def _start_all_gather(self, source: np.ndarray | None, target: np.ndarray, incoming: Parts) -> Wait:
        byte = self._mpi.BYTE
        given = self._mpi.IN_PLACE if source is None else [source, byte]
        return self._wait_for(self._world.Iallgatherv(given, [target, incoming, byte]))

    def _start_broadcast(self, array: np.ndarray, root: int) -> Wait:
        return self._wait_for(self._world.Ibcast([array, self._mpi.BYTE], root))

    def _start_send(self, array: np.ndarray, to: int) -> Wait:
        return self._wait_for(self._world.Isend([array, self._mpi.BYTE], to))

    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        return self._wait_for(self._world.Irecv([array, self._mpi.BYTE], source))

    def _wait_for(self, request: Any) -> Wait:
        return partial(self._wait, request)

    def _wait(self, request: Any) -> None:
        if request.Test():
            return
        begin = time.monotonic()
        while not request.Test():
            self.watch.check(self._operation)
            waited = time.monotonic() - begin
            if waited < _YIELDING:
                _yield()
            else:
                time.sleep(_SLEEP)
                self.watch.waits(self._operation, waited)
                self._check_patience(waited)
        self.watch.goes_on()

    def _check_patience(self, waited: float) -> None:
        limit = env.collective_timeout()
        if limit and waited > limit:
            self.watch.timed_out(self._operation, limit)
            self.watch.check(self._operation)
            text = f"rank {self.rank} has waited for {limit:g} s for the other ranks"
            self.watch.fail(f"has waited for {limit:g} s for the other ranks")
            raise ProcessGroupError(
                message(
                    self._operation,
                    text,
                    expected="the same calls in the same order on all ranks",
                    fix="POLYHAL_COLLECTIVE_TIMEOUT raises the limit",
                )
            )

    def abort(self, reason: str) -> None:
        """See `ProcessGroup`."""
        self.watch.fail(reason)

    def close(self) -> None:
        """Wait for the other ranks to end, and finalize MPI. No-op if a rank is gone: finalizing would hang."""
        if self.watch.leave():
            self._world.Free()
            self._mpi.Finalize()


_LAUNCHED: dict[str, Watch] = {}


def launched_watch() -> Watch | None:
    """Return the connection that a launched process made at its start."""
    return _LAUNCHED.get("watch")


def keep_watch(watch: Watch) -> None:
    """Keep the connection of a launched process, for the group that it creates later."""
    _LAUNCHED["watch"] = watch


def _library() -> ModuleType:
    """Import `mpi4py.MPI`, which initializes MPI. Raises ProcessGroupError."""
    try:
        import mpi4py
    except ImportError as error:
        raise ProcessGroupError(
            message("init", "mpi4py is missing", fix='run pip install "polyhal[distributed]"')
        ) from error
    # Finalizing waits for all ranks, so it must not happen when one is gone.
    mpi4py.rc.finalize = False
    mpi4py.rc.thread_level = "serialized"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ProcessGroupError(
            message(
                "init", f"mpi4py finds no MPI library: {error}", fix="run pip install mpich, or load your system's MPI"
            )
        ) from error
    library: ModuleType = MPI
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise ProcessGroupError(
            message("init", "this MPI supports only one thread", expected="MPI_THREAD_SERIALIZED", fix="use MPICH")
        )
    return library


def _ignore_notices() -> None:
    """Ignore the signal by which MPICH's mpiexec would end the survivors of a killed rank; the hub notifies them."""
    if hasattr(signal, "SIGUSR1") and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        try:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        except ValueError:  # not the main thread
            return


def _unlink_shared_memory() -> None:
    """Remove the names of MPICH's shared memory, which lives until its users end: a killed job would leave it indefinitely."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        for name in set(_SEGMENT.findall(maps.read_text(encoding="utf-8", errors="replace"))):
            Path(name).unlink(missing_ok=True)


def _check_place(size: int) -> None:
    """Raise ProcessGroupError if MPI has fewer processes than were launched: each would run as the only rank."""
    place = mpi_place()
    started = place.size if place is not None else slurm_tasks()
    if size != started:
        raise ProcessGroupError(
            message(
                "init",
                f"{started} processes were started, but MPI in this process reports {size}",
                expected="an MPI library that belongs to the launcher",
                fix="use `polyhal launch`, the mpiexec of this Python environment, or under Slurm `srun --mpi=pmi2`",
            )
        )
