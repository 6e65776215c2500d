"""`polyhal.torch.jit`: record functions of PyTorch programs once per signature, and replay them."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch
from torch.optim import Optimizer

from polyhal.hal import dispatch
from polyhal.hal.diagnostics.explain_graph import explain
from polyhal.hal.errors import message
from polyhal.hal.ir.graph import Graph
from polyhal.hal.scheduler.profile import StepProfile
from polyhal.hal.settings.log import logger
from polyhal.hal.settings.state import settings
from polyhal.steps.jit import nothing_recorded
from polyhal.steps.lru_cache import LRUCache
from polyhal.torch import private
from polyhal.torch.device import NAME
from polyhal.torch.steps.host import DecisionChangedError, NotReplayableError
from polyhal.torch.steps.record import record
from polyhal.torch.steps.settings import noticing_optimizers
from polyhal.torch.steps.signature import Call
from polyhal.torch.steps.step import RecordedStep

_LOG = logger("capture")

P = ParamSpec("P")
R = TypeVar("R")

_MOST_FAILURES = 3
"""Number of failed recordings after which calls run op by op: a step that changes Python objects may only create its state."""


@dataclass(slots=True)
class _Entry:
    """Recordings of one signature."""

    steps: list[RecordedStep] = field(default_factory=list)
    """One step for each set of guards, the latest last."""
    is_eager: bool = False
    """True if calls of this signature cannot be replayed."""
    failures: int = 0


class RecordedFunction(Generic[P, R]):
    """A function that is recorded and replayed. See `jit`."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__qualname__", type(function).__name__)
        self._max_graphs = max_graphs
        self._cache: LRUCache[tuple[Any, ...], _Entry] = LRUCache(max_graphs)
        self._warmed_up = not warm_up
        self._evicted = False
        self._live_settings = frozenset({"lr"})
        """Names of the optimizer settings that each run reads; others are added when they change."""
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the function itself, or bound to an object."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not _may_replay():
            return self._function(*args, **kwargs)
        with self._lock:
            if not self._warmed_up:
                # The first call creates one-time state: optimizer state, caches of the program.
                with noticing_optimizers(self._optimizers.add):
                    result = self._function(*args, **kwargs)
                self._warmed_up = True
                _LOG.info("%s: warmed up by a call that ran op by op", self._name)
                return result
            call = Call(args, kwargs)
            entry = self._entry((tuple(call.key), *_modes()))
            if entry.is_eager:
                return self._function(*args, **kwargs)
            for step in reversed(entry.steps):
                if step.confirmed and step.holds(call):
                    try:
                        return step.run(call)  # type: ignore[no-any-return]
                    except DecisionChangedError:
                        continue
            return self._record_and_run(entry, call)

    def _entry(self, key: tuple[Any, ...]) -> _Entry:
        """Return the entry of a signature, which may be a new one."""
        entry = self._cache.get(key)
        if entry is not None:
            return entry
        if self._cache.is_full and not self._evicted:
            self._evicted = True
            self._warn(
                f"it is called with more than {self._max_graphs} combinations of shapes and arguments",
                fix="pad tensors to few shapes, pass numbers that change as floats or tensors, or raise max_graphs",
            )
        return self._cache.add(key, _Entry())

    def _record_and_run(self, entry: _Entry, call: Call) -> R:
        """Record the function. Run the known step that equals the recording, or else the new step."""
        self._forget_moved(entry)
        self._follow_settings(entry)
        try:
            pending = record(self._function, call, self._optimizers, self._live_settings)
        except NotReplayableError as error:
            return self._run_as_it_stands(entry, call, error)
        try:
            step = self._matching(entry, pending.step, call)
            if step is None:
                pending.abandon()
                return self._function(*call.args, **call.kwargs)
            return step.run(call)  # type: ignore[no-any-return]
        except BaseException:
            entry.steps.clear()
            pending.abandon()
            raise

    def _matching(self, entry: _Entry, step: RecordedStep, call: Call) -> RecordedStep | None:
        """Return the known step that a recording repeats, or the new one; None if capture is given up for such calls."""
        for known in entry.steps:
            if known.same_as(step):
                known.adopt(step)
                known.confirmed = True
                _LOG.info("%s: confirmed; such calls replay the step", self._name)
                return known
        expected = next((s for s in reversed(entry.steps) if not s.confirmed and s.holds(call)), None)
        problem = "" if expected is None else _difference(expected, step)
        if not problem and len(entry.steps) >= self._max_graphs:
            reason = entry.steps[-1].guards.changed() or "Python took another path"
            problem = f"it was recorded {self._max_graphs} times for the same arguments, the last time because {reason}"
        if problem:
            self._give_up(entry, problem, "pass changing values as tensor or float arguments")
            return None
        entry.steps.append(step)
        _LOG.info("%s: recorded a step of %d nodes", self._name, len(step.captured.graph.nodes))
        return step

    def _run_as_it_stands(self, entry: _Entry, call: Call, error: NotReplayableError) -> R:
        entry.failures += 1
        if error.is_certain or entry.failures >= _MOST_FAILURES:
            self._give_up(entry, str(error), error.fix)
        return self._function(*call.args, **call.kwargs)

    def _give_up(self, entry: _Entry, problem: str, fix: str) -> None:
        entry.is_eager = True
        entry.steps.clear()
        _LOG.info("%s: given up; such calls run op by op", self._name)
        self._warn(f"{problem}. The step runs eagerly from now on", fix=fix)

    @staticmethod
    def _forget_moved(entry: _Entry) -> None:
        """Drop steps whose memory was replaced, and let later steps look up that memory at each run."""
        for step in list(entry.steps):
            for storage in step.moved():
                storage.moves = True
                if step in entry.steps:
                    entry.steps.remove(step)

    def _follow_settings(self, entry: _Entry) -> None:
        """Let runs read the optimizer settings that changed since the last recording."""
        if entry.steps:
            changed = entry.steps[-1].guards.changed_settings()
            if changed - self._live_settings:
                self._live_settings |= changed
                entry.steps.clear()

    def _warn(self, problem: str, fix: str) -> None:
        warnings.warn(message(f"polyhal.torch.jit {self._name}", problem, fix=fix), stacklevel=2)

    @property
    def steps(self) -> list[RecordedStep]:
        """The steps recorded so far."""
        return [step for entry in self._cache.values() for step in entry.steps]

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far, as recorded."""
        return [step.captured.graph for step in self.steps]

    def explain(self) -> str:
        """Report the effect of each pass on each recorded step, and the implementation of each op with the reason."""
        return "\n\n".join(explain(step.executable) for step in self.steps) or nothing_recorded(self._warmed_up)

    @staticmethod
    def profile() -> StepProfile:
        """Time the recorded steps inside a block, node by node: `with step.profile() as p: step(...)`, then `print(p)`."""
        return StepProfile()


def _may_replay() -> bool:
    """Return whether this is a plain call: outside other recordings, dispatch modes and anomaly detection."""
    return (
        dispatch.thread.executor.replays_graphs
        and not private.is_watched()
        and not torch.is_anomaly_enabled()
        and not torch.compiler.is_compiling()
    )


def _modes() -> tuple[Any, ...]:
    """Return the modes of the thread that change results of ops."""
    is_cast = torch.is_autocast_enabled(NAME)
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_autocast_dtype(NAME) if is_cast else None,
        settings.result_key,
    )


def _difference(before: RecordedStep, now: RecordedStep) -> str:
    """Return why a second recording does not repeat the first; "" if it is a step in its own right."""
    if before.host.decides_otherwise(now.host):
        return ""
    change = before.captured.changed_number(now.captured)
    if change is not None:
        node, old, new = change
        return f"Python computes another number at each call ({old!r}, then {new!r}, in {node.op.name})"
    rebound = before.captured.rebound_constants(now.captured)
    if rebound:
        spec, line = now.captured.graph.specs[rebound[0]], now.captured.first_uses.get(rebound[0], "")
        return f"the step reads other memory at each call ({spec}, first used at {line})"
    if not before.host.same_as(now.host):
        return "the step does other work on CPU tensors at each call"
    return "" if before.results.same_as(now.results) else "the step returns other numbers at each call"


@overload
def jit(function: Callable[P, R], *, max_graphs: int = ..., warm_up: bool = ...) -> RecordedFunction[P, R]: ...
@overload
def jit(*, max_graphs: int = ..., warm_up: bool = ...) -> Callable[[Callable[P, R]], RecordedFunction[P, R]]: ...
def jit(
    function: Callable[P, R] | None = None, *, max_graphs: int = 8, warm_up: bool = True
) -> RecordedFunction[P, R] | Callable[[Callable[P, R]], RecordedFunction[P, R]]:
    """Record what a function of a PyTorch program does on Polyhal's device as one graph, and replay it.

    A function may be a whole training step: forward, `backward()`, the optimizer. The first call runs op by op (unless
    `warm_up` is False), so that lazily created state exists; the second is recorded and replayed; the third is recorded again,
    to check that the function does the same. Later calls only replay, with bitwise equal results.

    Tensor and float arguments may differ from call to call. Other shapes or arguments, `train()` and `eval()`, and new
    parameters are detected and recorded separately, at most `max_graphs` times each. CPU tensors and learning rates are read at
    each run. Results do not require gradients. Calls from several threads run one after another.

    Warns, and calls the function eagerly later, if a replay would not repeat its effects. Raises CaptureError, which names the
    line, if Python reads the value of a tensor of the device; parameters, gradients and optimizers are rolled back.
    """
    if function is None:
        return lambda f: RecordedFunction(f, max_graphs, warm_up)
    return RecordedFunction(function, max_graphs, warm_up)
