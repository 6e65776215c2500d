"""Work on the host for tensors of a device: the policy that permits it, and its counts.

POLYHAL_FALLBACK is the policy. It applies to all ops that run on the host: ops that the device cannot run, ops that are
declared to run there, and functions that compute in NumPy.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.core.execution.user_line import user_position
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import FallbackRefusedError, message

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_LOG = logger("dispatch")


class HostCalls(NamedTuple):
    """Number of an op's calls on the host, and the bytes that they moved in both directions."""

    calls: int
    nbytes: int


class HostWork:
    """Counter of host calls of all devices and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, HostCalls] = {}

    def count(self, op: str, nbytes: int) -> None:
        """Count a call."""
        _LOG.debug("%s runs on the host and moves %d bytes", op, nbytes)
        with self._lock:
            calls, moved = self._counts.get(op, (0, 0))
            self._counts[op] = HostCalls(calls + 1, moved + nbytes)

    def counts(self) -> dict[str, HostCalls]:
        """Return the calls since the start of the process, by op."""
        with self._lock:
            return dict(self._counts)

    def since(self, before: dict[str, HostCalls]) -> dict[str, HostCalls]:
        """Return the calls since `counts` returned `before`."""
        found = {}
        for op, (calls, nbytes) in self.counts().items():
            known = before.get(op, HostCalls(0, 0))
            if calls > known.calls:
                found[op] = HostCalls(calls - known.calls, nbytes - known.nbytes)
        return found


HOST_WORK = HostWork()


def check_policy(op: str, device: Device, problem: str, declared: bool) -> None:
    """Raise FallbackRefusedError if the policy forbids an op on the host; `declared` marks ops declared to run there."""
    policy = env.fallback_policy()
    if policy == "error" or (policy == "declared" and not declared):
        fix = "set POLYHAL_FALLBACK=warn or allow to permit that"
        raise FallbackRefusedError(message(op, problem, fix=fix, device=device))


def warn_of_host_work(op: str, device: Device, moved: int, reason: str) -> None:
    """Warn once that an op runs on the host and moves `moved` bytes, if the policy is "warn"."""
    if env.fallback_policy() == "warn":
        problem = f"runs on the host and moves {moved} bytes per call: {reason}"
        device.planner.warn_once(op, message(op, problem, device=device))


def work_on_host(op: str, device: Device, moved: int, reason: str) -> None:
    """Count a call of a function that computes in NumPy and moves `moved` bytes. Raises FallbackRefusedError."""
    check_policy(op, device, f"would run on the host and move {moved} bytes: {reason}", declared=True)
    warn_of_host_work(op, device, moved, reason)
    HOST_WORK.count(op, moved)


def warn_at_user(text: str) -> None:
    """Warn at the innermost line outside of this library."""
    file, line = user_position()
    warnings.warn_explicit(text, UserWarning, file or "<unknown>", line or 1)
