"""The job of this process: joining it, querying it, and leaving it at exit."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from types import TracebackType

from polyhal.distributed.devices import take_device
from polyhal.distributed.engines import engines
from polyhal.distributed.mpi import launched_watch
from polyhal.distributed.solo import SoloGroup
from polyhal.hal.collectives.process_group import ProcessGroup, ProcessGroupError
from polyhal.hal.core.settings import env
from polyhal.hal.device import Device
from polyhal.hal.errors import message


class _Job:
    """The process group of this process, after `join`."""

    def __init__(self) -> None:
        self.group: ProcessGroup | None = None
        self.failed = False
        self._before = sys.excepthook

    def join(self, group: ProcessGroup) -> None:
        self.group = group
        self._before = sys.excepthook
        sys.excepthook = self._report
        atexit.register(self.leave)

    def _report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Report an uncaught exception to the other ranks: it ends this one."""
        if isinstance(error, ProcessGroupError) and self.group is not None:
            print(
                f"error: rank {self.group.rank}: {error}", file=sys.stderr, flush=True
            )  # the traceback of the failed rank matters, not this one
        else:
            self._before(kind, error, trace)
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        self.failed = True
        if self.group is not None and not isinstance(error, ProcessGroupError):
            text = " ".join(str(error).split())
            self.group.abort(f"failed: {type(error).__name__}" + (f": {text}" if text else ""))

    def leave(self) -> None:
        group, self.group = self.group, None
        if group is not None and not self.failed:
            group.close()


_JOB = _Job()


def init(engine: str | None = None, *, devices: Sequence[Device | str] | None = None) -> ProcessGroup:
    """Join the other processes of the job, and choose this process's default device. Returns the process group.

    `engine` is mpi, ray or an engine of an installed package; the default is the one that started this process. Without a
    launcher, the process is the only rank. The ranks of a machine use `devices` round-robin, by default its GPUs. A second
    call returns the same group. Raises ProcessGroupError, and DeviceUnavailableError.

    >>> polyhal.distributed.init(devices=["numpy"]).size
    1
    >>> polyhal.set_default_device(None)
    """
    if _JOB.group is not None:
        return _JOB.group
    group = engines().connect(engine) or SoloGroup()
    _JOB.join(group)
    if devices is not None or group.size > 1:
        take_device(group.local_rank, [d if isinstance(d, str) else d.name for d in devices or ()])
    return group


def process_group() -> ProcessGroup:
    """Return the group that `init` has joined, which exchanges NumPy arrays. Raises ProcessGroupError before `init`."""
    if _JOB.group is None:
        raise ProcessGroupError(
            message("process_group", "this process has not joined a job", fix="call polyhal.distributed.init() first")
        )
    return _JOB.group


def is_initialized() -> bool:
    """Return whether `init` was called, with any number of ranks."""
    return _JOB.group is not None


def rank() -> int:
    """Return the number of this process, from 0. Raises ProcessGroupError before `init`."""
    return process_group().rank


def size() -> int:
    """Return the number of processes. Raises ProcessGroupError before `init`."""
    return process_group().size


def local_rank() -> int:
    """Return the number of this process among the processes of its machine. Raises ProcessGroupError before `init`."""
    return process_group().local_rank


def barrier() -> None:
    """Wait until all ranks have called this, equally often. Raises ProcessGroupError if one is gone."""
    process_group().barrier()


def restarts() -> int:
    """Return how often `polyhal launch --restarts` has restarted this job; if above 0, load a checkpoint."""
    return env.restarts()


def launch_command() -> str | None:
    """Return the command line of `polyhal launch` that started this process, without the program; None without a launcher."""
    return env.launch_command()


def note_resume(arguments: Sequence[str]) -> None:
    """Report the Polyhal command that resumes the job from its last checkpoint to the launcher, if there is one."""
    watch = launched_watch()
    if watch is not None:
        watch.note(resume=[*arguments])


def fail(error: BaseException) -> None:
    """Report to the other ranks that this one ends with a caught error.

    No-op under a launcher, which reports errors itself.
    """
    if launched_watch() is None:
        _JOB.fail(error)


def leave() -> None:
    """Leave the job, as all ranks must; Python does so at exit. Afterwards `init` may be called again."""
    _JOB.leave()
