"""Captured functions: recorded as a graph once per call signature, and replayed with almost no Python.

A step may be all of training: forward, backward, clipping, optimizer, loss scaling, schedule. Parameters and state are
updated in place; random numbers and learning rates advance from run to run.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, overload

from polyhal.amp.autocast import autocast_dtype
from polyhal.hal import dispatch
from polyhal.hal.capture.result import UNNAMED, CapturedGraph
from polyhal.hal.errors import message
from polyhal.hal.ir.graph import CapturedConstant, Graph
from polyhal.hal.recording import Recording
from polyhal.hal.scheduler.activity import StepActivity
from polyhal.hal.scheduler.budget import plan_within
from polyhal.hal.scheduler.profile import StepProfile
from polyhal.hal.scheduler.report import MemoryReport, report
from polyhal.hal.settings.log import logger
from polyhal.hal.settings.state import settings
from polyhal.steps.lru_cache import LRUCache
from polyhal.steps.record import RecordedCall, record_call
from polyhal.steps.signature import CallArguments, describe_key
from polyhal.steps.step import CapturedStep
from polyhal.tensor import Tensor

_LOG = logger("capture")

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _CacheEntry:
    """Recordings of one signature."""

    steps: list[CapturedStep] = field(default_factory=list)
    """One for each set of guards (modes of modules, gradients) that was met, the latest last."""
    eager: bool = False
    """True if the function cannot be replayed, because it replaces state instead of changing it in place."""


class Jitted(Generic[P, R]):
    """A function that is captured and replayed. See `jit`."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool, budget: int | None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__qualname__", type(function).__name__)
        self._max_graphs = max_graphs
        self._cache: LRUCache[tuple[Any, ...], _CacheEntry] = LRUCache(max_graphs)
        self._warmed_up = not warm_up
        self._budget = budget
        self._evicted = False
        self._floats: list[float] = []
        """The float arguments of the present call, from which recorded steps read them."""
        self._lock = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not dispatch.thread.executor.replays_graphs:
            return self._function(*args, **kwargs)
        with self._lock:
            if not self._warmed_up:
                # The first call creates one-time state: optimizer state, caches of the program.
                result = self._function(*args, **kwargs)
                self._warmed_up = True
                _LOG.info("%s: warmed up by a call that ran op by op", self._name)
                return result
            arguments = CallArguments(args, kwargs)
            entry = self._entry(self._key(arguments))
            if entry.eager:
                return self._function(*args, **kwargs)
            self._floats[:] = arguments.floats
            step = _matching(entry, arguments.tensors)
            if step is None or not step.confirmed:
                return self._record_and_run(entry, step, arguments.tensors, args, kwargs)
            replayed: R = step.run(arguments.tensors)
            return replayed

    @staticmethod
    def _key(arguments: CallArguments) -> tuple[Any, ...]:
        return tuple(arguments.key), settings.result_key, dispatch.thread.grad_enabled, autocast_dtype()

    def _entry(self, key: tuple[Any, ...]) -> _CacheEntry:
        """Return the cache entry of a signature, which may be a new one."""
        entry = self._cache.get(key)
        if entry is not None:
            return entry
        if self._cache.is_full and not self._evicted:
            self._evicted = True
            self._warn(
                f"it is called with more than {self._max_graphs} signatures, now {describe_key(key[0])}",
                expected=" or ".join(describe_key(k[0]) for k in self._cache),
                fix="pad tensors to few shapes, pass numbers that change as floats or tensors, or raise max_graphs",
            )
        return self._cache.add(key, _CacheEntry())

    def _record_and_run(
        self, entry: _CacheEntry, expected: CapturedStep | None, tensors: list[Tensor], args: Any, kwargs: Any
    ) -> R:
        """Record the function again. Run the step that does the same if there is one, else a new step."""
        recording = Recording()
        try:
            recorded = self._record(recording, args, kwargs)
            step = next((s for s in entry.steps if s.captured.same_step(recorded.captured)), None)
            if step is None:
                step = CapturedStep(*recorded, self._budget)
                _LOG.info("%s: recorded a step of %d nodes", self._name, len(step.graph.nodes))
                self._add(entry, expected, step)
            else:
                step.adopt(recorded.captured)
                step.confirmed = True
                _LOG.info("%s: confirmed; such calls replay the step", self._name)
            step.version = dispatch.structure.version
            result: R = step.run(tensors)
            return result
        except BaseException:
            # Objects that the function changed must not keep fake tensors.
            for other in entry.steps:
                other.version = -1
            recording.abandon()
            raise

    def _record(self, recording: Recording, args: Any, kwargs: Any) -> RecordedCall:
        return record_call(self._function, args, kwargs, recording, self._floats, self._name)

    def _add(self, entry: _CacheEntry, expected: CapturedStep | None, step: CapturedStep) -> None:
        """Cache a step, unless it differs from `expected` only in replaced state or in numbers; then give up capture."""
        if expected is not None and (
            self._replaces_state(expected, step.captured) or self._computes_numbers(expected, step.captured)
        ):
            entry.eager = True
            entry.steps.clear()
            _LOG.info("%s: given up; such calls run op by op", self._name)
            return
        entry.steps.append(step)
        if len(entry.steps) > self._max_graphs:
            del entry.steps[0]
            self._warn(
                f"it was recorded more than {self._max_graphs} times for one signature, each time with other ops or on other "
                "memory",
                expected="a step that does the same at each call",
                fix="change state in place (x.copy_(...), x.add_(...)) instead of replacing tensors",
            )

    def _replaces_state(self, previous: CapturedStep, captured: CapturedGraph) -> bool:
        """Return whether a second recording reads other memory: state that the step replaces, or data not passed to it."""
        outputs = {id(t.buffer) for t, _ in previous.captured.live_outs}
        own = [i for i, s in enumerate(captured.sources) if isinstance(s, CapturedConstant) and id(s.buffer) in outputs]
        rebound = own or previous.captured.rebound_constants(captured)
        if not rebound:
            return False
        first = rebound[0]
        name, line = captured.graph.names.get(first, ""), captured.first_uses.get(first, "")
        tensor = f"{name + ', ' if not name.startswith(UNNAMED) else ''}a {captured.graph.specs[first]}, first used at {line}"
        source = captured.sources[first]
        if own:
            problem = f"the step reads what its last call made ({tensor}): state that is replaced is lost on replay"
        elif isinstance(source, CapturedConstant) and source.frozen:
            problem = f"the step makes a constant of other values at each call ({tensor})"
        else:
            problem = f"the step reads another tensor at each call, which is not passed to it ({tensor})"
        self._warn(
            f"{problem}; it runs without capture from now on",
            expected="state that is changed in place, and data among the arguments",
            fix="write x.copy_(...) or x.add_(...) instead of x = ..., or pass the tensor",
        )
        return True

    def _computes_numbers(self, previous: CapturedStep, captured: CapturedGraph) -> bool:
        """Return whether a second recording differs in nothing but numbers that Python computes."""
        change = previous.captured.changed_number(captured)
        if change is None:
            return False
        node, before, now = change
        module = node.origin.module if node.origin is not None else ""
        self._warn(
            f"Python computes another number at each call ({before!r}, then {now!r}, in {node.op.name}"
            f"{' of ' + module if module else ''}), which a replay would not see; it runs without capture from now on",
            expected="numbers that stay the same, or that are known to change",
            fix="pass the number as a float argument, or write polyhal.runtime_scalar(lambda: ...)",
        )
        return True

    def _warn(self, problem: str, expected: str, fix: str) -> None:
        warnings.warn(message(f"jit {self._name}", problem, expected=expected, fix=fix), stacklevel=2)

    @property
    def steps(self) -> list[CapturedStep]:
        """The steps recorded so far, at least one for each signature."""
        return [step for entry in self._cache.values() for step in entry.steps]

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far."""
        return [step.graph for step in self.steps]

    def memory_report(self, *args: P.args, **kwargs: P.kwargs) -> MemoryReport:
        """Report the memory that a call with these arguments needs, by kind, and the largest tensors. Nothing runs.

        If the function was not recorded for such a call, it is recorded for the report and rolled back. Raises CaptureError
        as a call does.
        """
        with self._lock:
            arguments = CallArguments(args, kwargs)
            step = _matching(self._cache.get(self._key(arguments)) or _CacheEntry(), arguments.tensors)
            if step is not None:
                return step.memory_report()
            self._floats[:] = arguments.floats
            recording = Recording()
            try:
                plan = plan_within(self._record(recording, args, kwargs).captured, self._budget)
            finally:
                recording.abandon()
            return report(plan)

    def explain(self) -> str:
        """Report the effect of passes on each recorded step, and how and why each op runs."""
        return "\n\n".join(step.explain() for step in self.steps) or nothing_recorded(self._warmed_up)

    @staticmethod
    def activity() -> StepActivity:
        """Time the work of each device inside a block: `with step.activity() as a: step(...)`, then `print(a)`."""
        return StepActivity()

    @staticmethod
    def profile() -> StepProfile:
        """Time the captured steps inside a block, node by node: `with step.profile() as p: step(...)`, then `print(p)`."""
        return StepProfile()


def nothing_recorded(warmed_up: bool) -> str:
    """Return the explanation of a captured function without recorded steps."""
    if not warmed_up:
        return "nothing is recorded yet: the first call will run op by op, and the next one is recorded"
    return "nothing is recorded yet: the next call is recorded, if a step can be recorded for its arguments"


def _matching(entry: _CacheEntry, tensors: list[Tensor]) -> CapturedStep | None:
    """Return the latest step whose guards hold now."""
    for step in reversed(entry.steps):
        if step.guards_hold(tensors):
            return step
    return None


@overload
def jit(
    function: Callable[P, R], *, max_graphs: int = ..., warm_up: bool = ..., budget: int | None = ...
) -> Jitted[P, R]: ...
@overload
def jit(
    *, max_graphs: int = ..., warm_up: bool = ..., budget: int | None = ...
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    function: Callable[P, R] | None = None,
    *,
    max_graphs: int = 8,
    warm_up: bool = True,
    budget: int | None = None,
) -> Jitted[P, R] | Callable[[Callable[P, R]], Jitted[P, R]]:
    """Record the work of `function` on devices as a graph, and replay it.

    The first call runs eagerly (not without `warm_up`), so that lazily created state exists. The second is recorded and
    replayed. The third is recorded again, to check that the function does the same. Later calls only replay.

    The values of tensor and float arguments may differ from call to call. Other shapes, dtypes, devices or arguments make
    another signature, for which the function is recorded again; at most `max_graphs` signatures are kept, and the least
    recently used one is evicted. Changes of a module's mode or structure are noticed. Gradients flow through results. What else
    Python does in the function happens only while it is recorded. Calls from several threads take turns.

    With a `budget` in bytes per device, including parameters and state, as many values of the forward pass as necessary are
    rematerialized in the backward pass; results stay the same. Raises OutOfMemoryError if that is not enough.

    Warns, and runs eagerly later, if the function replaces state instead of changing it in place. Raises CaptureError
    if Python asks for the value of a tensor, and names the line; parameters, gradients and optimizers are rolled back.

    >>> step = polyhal.jit(lambda x: (x * x).sum())
    >>> [step(polyhal.tensor([1.0, n])).item() for n in (1.0, 2.0, 3.0, 4.0)]
    [2.0, 5.0, 10.0, 17.0]
    """
    if function is None:
        return lambda f: Jitted(f, max_graphs, warm_up, budget)
    return Jitted(function, max_graphs, warm_up, budget)
