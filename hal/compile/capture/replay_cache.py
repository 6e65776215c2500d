"""Replay of calls: the state machine of all captured functions (`polyhal.jit`, `polyhal.torch.jit`, `torch.compile`).

A frontend supplies how a call is flattened (`FlatCall`), recorded (`ReplayCache._record`), guarded and bound (`ReplayStep`).

A call has a signature, the `key` of its flattened arguments. Each signature has several steps, one for each set of guards
(modes of modules, gradients, Python objects). The first row that applies to a call decides:

| state | event | action | warning |
|---|---|---|---|
| signature unknown | the cache is full | evict the least recently used signature | once: more than N signatures |
| signature unknown | | add the signature without steps; given up if N others were, since the last confirmation | |
| given up | any call | call the function op by op | |
| a confirmed step | its guards hold | replay it | |
| a confirmed step | `run` raises `PathChangedError` | try the next confirmed step | |
| no such step | recording raises `NotReplayableError` | call the function op by op | |
| no such step | the recording ended early (`FinishedCall`) | return the result of the call, which has run | |
| no such step | one of these two, with a certain reason or the third time | give up; keep confirmed steps | once: the reason |
| no such step | recording or the first run raises another error | roll back; known steps become stale | |
| any step | the recording equals it | confirm the step, run it | |
| no step, `is_pure` | recording succeeds | add a confirmed step, run it | |
| unconfirmed, its guards held | the recording has other numbers or memory | give up; run the recording once | the difference |
| N steps recorded in a row | the next recording repeats none | give up; run the recording once | it was recorded N times |
| no such step | recording succeeds | add an unconfirmed step, run it | |
| N steps known | one more is added | evict the oldest unconfirmed step, or the oldest | once: more than N steps |

A stale step is not replayed until a recording equals it: objects that a failed recording changed may differ. "Give up" drops
the steps of a signature and warns. The lock is held from flattening to the end of the run, so that threads take turns. It is
reentrant, because a captured function may call another one, or itself while it runs op by op.
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from polyhal.hal.compile.capture.difference import Difference, difference
from polyhal.hal.compile.capture.lru_cache import LRUCache
from polyhal.hal.compile.capture.replay_log import PathChangedError
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import message

_LOG = logger("capture")

_MOST_FAILURES = 3
"""Number of failed recordings after which calls run op by op: a step that changes Python objects may only create its state."""


_UNSTABLE = "a value on which Python branches differs between the recording of a call and its run"

_MOST_REASONS = 64
"""Number of reasons that a function keeps for its report."""


class KeyedCall(Protocol):
    """A call with its signature."""

    @property
    def key(self) -> Hashable:
        """Signature: calls with equal keys can share a recording."""
        ...

    def described(self, key: Any, /) -> str:
        """Describe a key for messages."""
        ...


C = TypeVar("C", bound=KeyedCall)


class NotReplayableError(Exception):
    """Effects of a function that a replay would not repeat: the call has to run op by op."""

    def __init__(self, problem: str, fix: str = "", *, expected: str = "", is_certain: bool = False) -> None:
        """Store the message; `is_certain` means that the next call will fail in the same way."""
        super().__init__(problem)
        self.fix = fix
        self.expected = expected
        self.is_certain = is_certain


class FinishedCall(NamedTuple):
    """A call that has run to its end, although no step could be made of it."""

    result: Any
    reason: NotReplayableError


class StepState(Enum):
    """State of a step of a replay cache."""

    RECORDED = auto()
    """Recorded once, and not yet confirmed by a second recording."""
    CONFIRMED = auto()
    """Equal in two recordings, and replayed."""
    STALE = auto()
    """To be recorded again before the next replay, because a recording failed."""


_CONFIRMED = StepState.CONFIRMED


class ReplayStep(ABC, Generic[C]):
    """A recorded call that can be replayed."""

    number_fix: ClassVar[str] = "pass the number as a float argument"
    """Remedy for a number that Python computes."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.captured = captured
        self.state = StepState.RECORDED
        self.missed = 0
        """Number of runs in a row that could not follow the recorded path."""

    @abstractmethod
    def holds(self, call: C) -> bool:
        """Return whether all that the step depends on, apart from the signature, is as it was when the step was recorded."""

    @abstractmethod
    def run(self, call: C) -> Any:
        """Run once, and return the results. Raises PathChangedError before any effect."""

    @abstractmethod
    def adopt(self, later: Self) -> None:
        """Take over the tensors of a later, equal recording: they are in use now."""

    def same_as(self, later: Self) -> bool:
        """Return whether a later recording is equal."""
        return self.captured.same_step(later.captured)

    def difference(self, later: Self) -> Difference | None:
        """Return why a replay would not repeat a later call with equal guards; None if the later one is a step of its own."""
        return difference(self.captured, later.captured, self.number_fix)

    def changed_guard(self) -> str:
        """Describe the first guard that does not hold."""
        return "a guard does not hold, or the function took another path"

    def explain(self) -> str:
        """Report the effect of each pass on the recorded graph, and how and why each op runs."""
        return str(self.captured.graph)


S = TypeVar("S", bound=ReplayStep[Any])

MISSED = object()
"""Returned for a call that does not repeat the one before."""


class RepeatedCall(Protocol):
    """A call that its step can replay again without its signature."""

    def may_apply(self) -> bool:
        """Return whether the thread's modes equal the call's modes. If they differ, the next call needs its signature."""
        ...

    def replay(self, args: tuple[Any, ...], /) -> Any:
        """Replay the step and return its results; MISSED, without any effect, if the arguments or the state may differ.

        The caller holds the lock, on a thread to which it applies.
        """
        ...


class Pending(NamedTuple, Generic[S]):
    """A recording that can still be rolled back."""

    step: S
    abandon: Callable[[], object]
    """Restores the known state that the call changed."""


@dataclass(slots=True)
class _Entry(Generic[S]):
    """Recordings of one signature."""

    steps: list[S] = field(default_factory=list)
    """One step for each set of guards that was met, the latest last."""
    is_given_up: bool = False
    failures: int = 0
    unrepeated: int = 0
    """Number of recordings since the last replay or confirmation."""


class ReplayCache(ABC, Generic[C, S]):
    """Steps of one function by the signatures of its calls. The module's docstring has the states."""

    is_pure: ClassVar[bool] = False
    """True if the signature determines the step: a recording is replayed without confirmation."""

    def __init__(self, title: str, max_graphs: int) -> None:
        """`title` names the function in messages. At most `max_graphs` signatures, and steps of each, are kept."""
        self._title = title
        self._max_graphs = max_graphs
        self._entries: LRUCache[Hashable, _Entry[S]] = LRUCache(max_graphs)
        self._warned: set[str] = set()
        """Kinds of warnings that were issued."""
        self._refusals = 0
        """Number of signatures that were given up since the last confirmation."""
        self.eager_reasons: dict[str, str] = {}
        """Reasons for which calls run op by op, each with its remedy."""
        self._repeat: RepeatedCall | None = None
        """Repeats the call before without its signature; None if the next call has to be looked up."""
        self._repeated: Hashable = None
        """Signature of the calls that it repeats."""
        self._lock = threading.RLock()

    @abstractmethod
    def _record(self, call: C) -> Pending[S] | FinishedCall:
        """Record a call, or the part before an operation that cannot be recorded, and run the rest.

        Raises NotReplayableError or CaptureError after the state is rolled back.
        """

    @abstractmethod
    def _run_eagerly(self, call: C) -> Any:
        """Run a call op by op."""

    def _repeating(self, step: S, call: C) -> RepeatedCall | None:
        """Return the repetition of a call, which a step has just replayed, or None."""
        return None

    def _before_recording(self, steps: list[S]) -> None:
        """Drop steps that can no longer be replayed. No-op: guards reject them."""

    def _replay(self, call: C) -> Any:
        """Replay a step, or record one and run it. The caller holds the lock."""
        if self._repeat is not None:
            self._repeat = None
            self._entries.get(self._repeated)  # the most recently used one
        entry = self._entries.get(call.key)
        if entry is None:
            entry = self._new_entry(call)
        for step in entry.steps[::-1]:
            if step.state is _CONFIRMED and step.holds(call):
                try:
                    result = step.run(call)
                except PathChangedError:
                    step.missed += 1
                    if entry.is_given_up and step.missed > self._max_graphs:
                        entry.steps.remove(step)
                    continue
                entry.unrepeated = step.missed = 0
                if step is entry.steps[-1]:
                    self._repeat, self._repeated = self._repeating(step, call), call.key
                return result
        return self._run_eagerly(call) if entry.is_given_up else self._record_and_run(entry, call)

    def _known_step(self, call: C) -> S | None:
        """Return the latest step for a call, confirmed or not; None if the call has to be recorded."""
        entry = self._entries.get(call.key)
        return None if entry is None else _holding(entry, call, StepState.RECORDED, _CONFIRMED)

    def _record_and_run(self, entry: _Entry[S], call: C) -> Any:
        self._before_recording(entry.steps)
        expected = _holding(entry, call, StepState.RECORDED)
        pending: Pending[S] | None = None
        try:
            outcome = self._record(call)
            if isinstance(outcome, Pending):
                pending = outcome
                return self._chosen(entry, pending.step, expected).run(call)
        except PathChangedError:
            if pending is not None:
                pending.abandon()
            self._note_failure(entry, NotReplayableError(_UNSTABLE, "use polyhal.where"))
        except BaseException as error:
            if pending is not None or not isinstance(error, NotReplayableError):
                self._distrust(entry)
                if pending is not None:
                    pending.abandon()
                raise
            self._note_failure(entry, error)
        else:
            self._note_failure(entry, outcome.reason)
            return outcome.result
        return self._run_eagerly(call)

    def _note_failure(self, entry: _Entry[S], reason: NotReplayableError) -> None:
        """Give up if the next recording would fail as well."""
        entry.failures += 1
        if reason.is_certain or entry.failures >= _MOST_FAILURES:
            self._refusals += 1
            kept = [step for step in entry.steps if step.state is _CONFIRMED]
            self._give_up(entry, Difference(str(reason), reason.expected, reason.fix))
            entry.steps[:] = kept

    def _note_eager(self, reason: Difference) -> None:
        """Keep the reason why calls run op by op, and warn of the first."""
        _LOG.info("%s: given up; such calls run op by op", self._title)
        if len(self.eager_reasons) < _MOST_REASONS:
            self.eager_reasons[reason.problem] = reason.fix
        self._warn_once(f"{reason.problem}; it runs eagerly from now on", reason.expected, reason.fix, kind="eager")

    def _chosen(self, entry: _Entry[S], step: S, expected: S | None) -> S:
        """Return the known step that a recording repeats, or else the new step; it is added unless capture is given up."""
        for known in entry.steps:
            if known.same_as(step):
                known.adopt(step)
                known.state = _CONFIRMED
                entry.unrepeated = self._refusals = 0
                _LOG.info("%s: confirmed; such calls replay the step", self._title)
                return known
        if self.is_pure:
            step.state = _CONFIRMED
            entry.steps.append(step)
            return step
        entry.unrepeated += 1
        reason = None if expected is None else expected.difference(step)
        if reason is None and entry.unrepeated > self._max_graphs:
            cause = next((s.changed_guard() for s in entry.steps[-1:]), "its memory was replaced")
            reason = Difference(
                f"it was recorded {entry.unrepeated} times in a row, the last time because {cause}",
                expected="calls that repeat earlier ones",
                fix="change state in place, and pass changing values as tensor or float arguments",
            )
        if reason is None:
            _LOG.info("%s: recorded a step of %d nodes", self._title, len(step.captured.graph.nodes))
            self._add(entry, step)
        else:
            self._give_up(entry, reason)
        return step

    def _distrust(self, entry: _Entry[S]) -> None:
        """Let all steps be recorded again after a failure: objects that the function changed must not keep fake tensors."""
        if not self.is_pure:
            for step in entry.steps:
                step.state = StepState.STALE

    def _new_entry(self, call: C) -> _Entry[S]:
        if self._entries.is_full:
            _LOG.info("%s: evicted the steps of the least recently used signature", self._title)
            self._warn_once(
                f"it is called with more than {self._max_graphs} signatures, now {call.described(call.key)}",
                expected=" or ".join(map(call.described, self._entries)),
                fix="pad tensors to few shapes, pass numbers that change as floats or tensors, or raise max_graphs",
                kind="signatures",
            )
        return self._entries.add(call.key, _Entry(is_given_up=self._refusals >= self._max_graphs))

    def _add(self, entry: _Entry[S], step: S) -> None:
        if len(entry.steps) >= self._max_graphs:
            entry.steps.remove(_least_useful(entry.steps))
            _LOG.info("%s: evicted a step; such calls record it again", self._title)
            self._warn_once(
                f"one signature has more than {self._max_graphs} steps, for other modes, gradients or Python objects",
                expected="few combinations, each of them repeated",
                fix="raise max_graphs, or use a function of its own for each of them",
                kind="steps",
            )
        entry.steps.append(step)

    def _give_up(self, entry: _Entry[S], reason: Difference) -> None:
        entry.is_given_up = True
        entry.steps.clear()
        self._note_eager(reason)

    def _warn_once(self, problem: str, expected: str, fix: str, *, kind: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(problem, expected, fix)

    def _warn(self, problem: str, expected: str, fix: str) -> None:
        warnings.warn(message(self._title, problem, expected=expected, fix=fix), stacklevel=2)

    @property
    def steps(self) -> list[S]:
        """The steps recorded so far."""
        return [step for entry in self._entries.values() for step in entry.steps]


def _holding(entry: _Entry[S], call: Any, *states: StepState) -> S | None:
    """Return the latest step in one of the states whose guards hold."""
    return next((s for s in reversed(entry.steps) if s.state in states and s.holds(call)), None)


def _least_useful(steps: list[S]) -> S:
    """Return the step to evict: the oldest that was not confirmed, or the oldest."""
    return next((s for s in steps if s.state is not _CONFIRMED), steps[0])
