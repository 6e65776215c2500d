"""Captured steps: a Python function recorded once as a graph and replayed with almost no Python.

A step may be all of training: forward, backward, clipping, optimizer, loss scaling, schedule. Parameters and state are
changed in place, random numbers and learning rates move on from run to run.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, overload

from polyhal.amp.autocast import autocast, autocast_dtype
from polyhal.hal import dispatch
from polyhal.hal.capture.recorder import StepRecorder
from polyhal.hal.capture.result import UNNAMED, CapturedConstant, CapturedGraph
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.ir.graph import Graph
from polyhal.hal.scheduler.budget import plan_within
from polyhal.hal.scheduler.profile import StepProfile
from polyhal.hal.scheduler.report import MemoryReport, report
from polyhal.hal.settings.state import settings
from polyhal.steps.arguments import Arguments, described, replaced
from polyhal.steps.backward import Backward
from polyhal.steps.results import pattern
from polyhal.steps.step import CapturedStep
from polyhal.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True)
class _Entry:
    """What is known of one signature: the variants of the step, for several modes and gradients, the latest last."""

    variants: list[CapturedStep] = field(default_factory=list)
    eager: bool = False
    """Whether the function cannot be replayed, as its state is replaced."""


class Jitted(Generic[P, R]):
    """A function that is captured and replayed. See `jit`."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool, budget: int | None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__qualname__", type(function).__name__)
        self._max_graphs = max_graphs
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._called = not warm_up
        self._budget = budget
        self._crowded = False
        self._floats: list[float] = []
        self._lock = threading.RLock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not dispatch.thread.executor.replays_graphs:
            # Part of a larger step, or something wants to see each op: anomaly detection, profiling.
            return self._function(*args, **kwargs)
        dtype = autocast_dtype()
        with self._lock:
            if not self._called:
                # What a step makes once (optimizer state, caches of the user's) is made by a first call as it stands.
                result = self._function(*args, **kwargs)
                self._called = True
                return result
            arguments = Arguments(args, kwargs)
            entry = self._entry((tuple(arguments.key), settings.key, dispatch.thread.grad_enabled, dtype))
            if entry.eager:
                return self._function(*args, **kwargs)
            self._floats[:] = arguments.floats
            variant = self._fitting(entry, arguments.tensors)
            if variant is None or not variant.confirmed:
                return self._look(entry, variant, arguments.tensors, args, kwargs)  # type: ignore[no-any-return]
            return variant.run(arguments.tensors)  # type: ignore[no-any-return]

    def _entry(self, key: Any) -> _Entry:
        """What is known of a signature. The one that was used longest ago goes when there are too many."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry
        if len(self._entries) >= self._max_graphs:
            if not self._crowded:
                self._warn(
                    f"it is called with more than {self._max_graphs} signatures, now {described(key[0])}",
                    expected=" or ".join(described(k[0]) for k in self._entries),
                    fix="pad tensors to few shapes, pass numbers that change as floats or tensors, or raise max_graphs",
                )
            self._crowded = True
            self._entries.popitem(last=False)
        entry = self._entries[key] = _Entry()
        return entry

    @staticmethod
    def _fitting(entry: _Entry, tensors: list[Tensor]) -> CapturedStep | None:
        """The variant that was recorded in the state that everything is in now."""
        for variant in reversed(entry.variants):
            if variant.fits(tensors):
                return variant
        return None

    def _look(self, entry: _Entry, expected: CapturedStep | None, tensors: list[Tensor], args: Any, kwargs: Any) -> Any:
        """Record the function anew, and run the variant that does the same if there is one, else a new one."""
        capture = StepRecorder()
        try:
            captured, results, seen, backward = self._record(capture, args, kwargs)
            step = next((v for v in entry.variants if v.captured.same_step(captured)), None)
            if step is None:
                step = CapturedStep(captured, results, seen, backward, self._budget)
                self._admit(entry, expected, step)
            else:
                step.stands_for(captured)
                step.confirmed = True
            step.version = dispatch.structure.version
            return step.run(tensors)
        except BaseException:
            # The objects that the function changed must not be left with tensors that never came to exist.
            for variant in entry.variants:
                variant.version = -1
            capture.abandon()
            raise

    def _admit(self, entry: _Entry, expected: CapturedStep | None, step: CapturedStep) -> None:
        """Keep a new variant, unless it is no other than `expected` but for state that was replaced."""
        if expected is not None and self._is_replaced(expected, step.captured):
            entry.eager = True
            entry.variants.clear()
            return
        entry.variants.append(step)
        if len(entry.variants) > self._max_graphs:
            del entry.variants[0]
            self._warn(
                f"it was recorded more than {self._max_graphs} times for one signature, each time with other ops or on other "
                "memory",
                expected="a step that does the same at each call",
                fix="change state in place (x.copy_(...), x.add_(...)) instead of replacing tensors",
            )

    def _is_replaced(self, previous: CapturedStep, captured: CapturedGraph) -> bool:
        """Whether a second look met other memory than the first: state that the step replaces, or data not passed to it."""
        made = {id(t.buffer) for t, _ in previous.captured.live_outs}
        own = [i for i, s in enumerate(captured.sources) if isinstance(s, CapturedConstant) and id(s.buffer) in made]
        other = own or previous.captured.rebound_constants(captured)
        if not other:
            return False
        first = other[0]
        name, where = captured.graph.names.get(first, ""), captured.first_uses.get(first, "")
        tensor = f"{name + ', ' if not name.startswith(UNNAMED) else ''}a {captured.graph.specs[first]}, first used at {where}"
        problem = (
            f"the step reads what its last call made ({tensor}): state that is replaced is lost on replay"
            if own
            else f"the step reads another tensor at each call, which is not passed to it ({tensor})"
        )
        self._warn(
            f"{problem}; it runs without capture from now on",
            expected="state that is changed in place, and data among the arguments",
            fix="write x.copy_(...) or x.add_(...) instead of x = ..., or pass the tensor",
        )
        return True

    def _warn(self, problem: str, expected: str, fix: str) -> None:
        warnings.warn(message(f"jit {self._name}", problem, expected=expected, fix=fix), stacklevel=2)

    def _record(
        self, capture: StepRecorder, args: Any, kwargs: Any
    ) -> tuple[CapturedGraph, Any, list[Tensor], Backward | None]:
        """What the function does, the pattern of its results, its arguments as it saw them, and the way back."""
        seen: list[Tensor] = []
        cut: list[Tensor] = []
        floats, places = self._floats, iter(range(len(self._floats)))

        def passed(x: Tensor) -> Tensor:
            if x.requires_grad and not x.is_leaf:  # what is before it on the tape is not part of the step
                x = x.detach()
                x.requires_grad = True
                cut.append(x)
            capture.add_input(x)
            seen.append(x)
            return x

        def number(value: float) -> Any:
            place = next(places)
            return capture.runtime_scalar(functools.partial(floats.__getitem__, place), f"float {place}")

        args, kwargs = replaced(args, passed, number), replaced(kwargs, passed, number)
        dtype = autocast_dtype()
        with ExitStack() as stack:
            stack.enter_context(dispatch.executing(capture))
            if dtype is not None:
                stack.enter_context(autocast(dtype))
            result = self._function(*args, **kwargs)
            found: list[Tensor] = []

            def add(x: Tensor) -> int:
                found.append(x)
                return len(found) - 1

            results = pattern(result, add, {id(x.buffer) for x in seen})
            del result
            if any(x.stored_grad is not None for x in cut):
                raise CaptureError(
                    message(
                        f"jit {self._name}",
                        "backward() is called inside on what depends on an argument that is the result of an op",
                        expected="leaves or detached tensors as arguments of a step with a backward pass of its own",
                        fix="pass x.detach(), or return the loss and call backward() outside",
                    )
                )
            values = [capture.value_of(x) for x in found]
            backward = Backward.record(capture, found, seen) if any(x.requires_grad for x in found) else None
            found.clear()
            return capture.finish([*values, *(backward.values() if backward else ())]), results, seen, backward

    @property
    def steps(self) -> list[CapturedStep]:
        """What was recorded so far: at least one step for each signature."""
        return [v for e in self._entries.values() for v in e.variants]

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far."""
        return [step.graph for step in self.steps]

    def memory_report(self, *args: P.args, **kwargs: P.kwargs) -> MemoryReport:
        """What memory a call with these arguments needs, by kind, and the largest tensors. Nothing runs.

        The function is recorded for it and everything is put back, unless it was recorded for such a call already. Raises
        CaptureError as a call does.
        """
        dtype = autocast_dtype()
        with self._lock:
            arguments = Arguments(args, kwargs)
            key = (tuple(arguments.key), settings.key, dispatch.thread.grad_enabled, dtype)
            step = self._fitting(self._entries.get(key, _Entry()), arguments.tensors)
            if step is not None:
                return step.memory_report()
            self._floats[:] = arguments.floats
            capture = StepRecorder()
            try:
                planned = plan_within(self._record(capture, args, kwargs)[0], self._budget)
            finally:
                capture.abandon()
            return report(planned)

    def explain(self) -> str:
        """For each recorded step what passes made of it, and how each op runs and why."""
        return "\n\n".join(step.explain() for step in self.steps) or "nothing is recorded yet"

    @staticmethod
    def profile() -> StepProfile:
        """Device times by node of the captured steps that run inside: `with step.profile() as p: step(...)`, `print(p)`."""
        return StepProfile()


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
    """Record what `function` does on devices, and replay it.

    The first call runs as it stands, so that lazily made state exists (not without `warm_up`); the second is recorded and
    replayed, the third is recorded again to see that it does the same. Later calls only replay. Tensors passed may differ in
    their values, floats too; another shape, dtype, device or other argument is recorded anew, for at most `max_graphs`
    signatures, of which the one used longest ago goes. A change of a module's mode or parts is noticed. Gradients flow through
    results. What else Python does in the function happens while it is recorded only. Calls from several threads take turns.

    With a `budget`, in bytes for each device, parameters and state included, values of the forward pass are computed again
    in the backward pass rather than kept, as many as it takes to keep to it; results stay the same. Raises
    OutOfMemoryError if that is not enough.

    Warns, and runs without capture, where state is replaced instead of changed in place. Raises CaptureError where Python asks
    for the value of a tensor, and names the line; parameters, gradients and optimizers are then as before the call.
    """
    if function is None:
        return lambda f: Jitted(f, max_graphs, warm_up, budget)
    return Jitted(function, max_graphs, warm_up, budget)


__all__ = ["Jitted", "jit"]
