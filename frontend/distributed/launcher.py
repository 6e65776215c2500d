"""Launches a program in several processes through mpiexec, reports the first lost rank and its cause, and restarts the job."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from polyhal.distributed import mpiexec, threads
from polyhal.distributed.environment import spans_machines
from polyhal.distributed.hub import Hub, LostRank
from polyhal.distributed.watch import GRACE
from polyhal.hal.core.settings.processes import signal_text

BAD_INPUT = 2
INTERRUPTED = 130
_STARTING = 120.0
"""Timeout in seconds for all ranks to connect."""
_LAST_WORDS = 3.0
"""Seconds to wait for mpiexec, which reports the signal that ended a process, before the error is printed."""
_POLL = 0.02


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job to launch: `program` is a Polyhal command, a script or `-m MODULE`, with its arguments."""

    program: tuple[str, ...]
    ranks: int
    worker: str
    """Module that every rank runs, with the program as its arguments."""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    restarts: int = 0
    """Number of restarts after the loss of a rank."""
    min_ranks: int | None = None
    """Minimum number of ranks after a restart; by default the initial number."""

    def command_line(self) -> str:
        """Return the shell command that launches the job."""
        options = ["-n", str(self.ranks)]
        options += ["--hosts", ",".join(self.hosts)] if self.hosts else []
        options += ["--devices", ",".join(self.devices)] if self.devices else []
        return shlex.join(["polyhal", "launch", *options, *self.program])


@dataclass(slots=True)
class JobOutcome:
    """Result of a job."""

    status: int
    loss: LostRank | None = None
    resume: tuple[str, ...] = ()
    """Command that resumes from the last checkpoint, if one was reported."""


def run(launch: JobPlan, stopping: Callable[[], bool], tell: Callable[[str], None]) -> int:
    """Run a job, and restart it up to `launch.restarts` times. Returns its exit status.

    `stopping` returns whether the user requested a stop, and `tell` prints an error. Raises ProcessGroupError without mpiexec.
    """
    fewest = launch.ranks if launch.min_ranks is None else launch.min_ranks
    for attempt in range(launch.restarts + 1):
        outcome = _once(launch, attempt, stopping)
        if outcome.loss is None or stopping():
            return outcome.status
        if outcome.status == BAD_INPUT:
            tell(outcome.loss.how.removeprefix("failed: "))
            return BAD_INPUT
        following = replace(launch, program=outcome.resume or launch.program)
        tell(_account(outcome, launch, following))
        if attempt == launch.restarts:
            return outcome.status
        launch = replace(following, ranks=max(fewest, launch.ranks - 1) if fewest < launch.ranks else launch.ranks)
        print(
            f"starting again ({attempt + 1} of {launch.restarts}): {launch.command_line()}", file=sys.stderr, flush=True
        )
    return 1


def _account(outcome: JobOutcome, launch: JobPlan, following: JobPlan) -> str:
    """Describe the loss, its effect and the remedy, in one line."""
    assert outcome.loss is not None
    others = launch.ranks - 1
    ended = {0: "", 1: "; the other rank has ended"}.get(others, f"; the other {others} ranks have ended")
    advice = f"; resume from the last checkpoint with: {following.command_line()}" if outcome.resume else ""
    return f"{outcome.loss.text}{ended}{advice}"


def _once(launch: JobPlan, attempt: int, stopping: Callable[[], bool]) -> JobOutcome:
    lost = threading.Event()
    hub = Hub(launch.ranks, everywhere=bool(launch.hosts) or spans_machines(), on_loss=lambda loss: lost.set())
    program = [sys.executable, "-m", launch.worker, *launch.program]
    command = mpiexec.command(launch.ranks, launch.hosts, program)
    # In a session of its own, so that Ctrl-C reaches the ranks through the hub, which lets them save their state.
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_environment(launch, hub, attempt),
        start_new_session=True,
    )
    assert job.stdout is not None
    assert job.stderr is not None
    outputs = [mpiexec.Output(job.stdout, sys.stdout), mpiexec.Output(job.stderr, sys.stderr)]
    try:
        _await(job, hub, lost, stopping)
    finally:
        _kill(job)
        for output in outputs:
            output.end()
        hub.close()
    loss = hub.loss
    if loss is None and job.returncode != 0 and len(hub.ended) < launch.ranks:
        loss = LostRank(-1, "mpiexec", f"ended with status {job.returncode} before all ranks had", job.returncode)
    number = next((output.signal for output in outputs if output.signal is not None), None)
    if loss is not None and loss.silent and number is not None:
        loss = loss._replace(how=f"was ended by {signal_text(number)}")
    resume = tuple(map(str, hub.notes.get("resume", ())))
    if loss is not None:
        return JobOutcome(loss.status or 1, loss, resume)
    return JobOutcome(next((s for s in hub.ended.values() if s), 0), None, resume)


def _await(job: subprocess.Popen[str], hub: Hub, lost: threading.Event, stopping: Callable[[], bool]) -> None:
    """Wait until the job ends; after a loss, for at most the grace period of the other ranks."""
    begin = time.monotonic()
    asked = False
    while job.poll() is None:
        if stopping() and not asked:
            asked = True
            hub.tell(stop=True)
        if lost.wait(_POLL):
            with suppress(subprocess.TimeoutExpired):
                job.wait(GRACE + _LAST_WORDS - 1)
            return
        if hub.missing() and time.monotonic() - begin > _STARTING:
            hub.give_up(f"has not started within {_STARTING:g} s")
            return


def _kill(job: subprocess.Popen[str]) -> None:
    """Kill the job's remaining processes on this machine; mpiexec ends those on other machines."""
    if job.poll() is None:
        job.terminate()
        with suppress(subprocess.TimeoutExpired):
            job.wait(1.0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _environment(launch: JobPlan, hub: Hub, attempt: int) -> dict[str, str]:
    per_host = -(-launch.ranks // max(len(launch.hosts), 1))
    own = {
        "POLYHAL_HUB": hub.address,
        "POLYHAL_LAUNCH": replace(launch, program=()).command_line(),
        "POLYHAL_RESTARTS": str(attempt),
    }
    if launch.devices:
        own["POLYHAL_RANK_DEVICES"] = ",".join(launch.devices)
    return {**threads.variables(per_host), **mpiexec.variables(), **os.environ, **own}


def is_program(arguments: Sequence[str], commands: Sequence[str]) -> bool:
    """Return whether `arguments` begin with a program: a command, a module or a script."""
    first = arguments[0]
    return first in commands or (first == "-m" and len(arguments) > 1) or first.endswith(".py")
