"""`polyhal.jit`: functions recorded as a graph once per call signature, and replayed with almost no Python.

A step may be all of training: forward, backward, clipping, optimizer, loss scaling, schedule. Parameters and state are
updated in place; random numbers and learning rates advance from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from polyhal.hal.compile.capture.replay_cache import Pending
from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.replayed_function import ReplayedFunction
from polyhal.hal.compile.scheduler.budget import plan_within
from polyhal.hal.compile.scheduler.report import MemoryReport, report
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.ops.top_level import top_level
from polyhal.mixed_precision import autocast_dtype
from polyhal.steps.record import RecordedCall, record_call
from polyhal.steps.signature import CallArguments
from polyhal.steps.steady_replay import SteadyReplay
from polyhal.steps.step import CapturedStep

P = ParamSpec("P")
R = TypeVar("R")


class Jitted(ReplayedFunction[P, R, CallArguments, CapturedStep]):
    """A function that is captured and replayed. See `jit`."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool, budget: int | None) -> None:
        super().__init__(function, max_graphs, warm_up, "jit")
        self._budget = budget
        self._floats: list[float] = []
        """The float arguments of the present call, from which recorded steps read them."""

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
        modes = settings.result_key, dispatch.thread.grad_enabled, dispatch.thread.device, autocast_dtype()
        call = CallArguments(args, kwargs, modes)
        self._floats[:] = call.host
        return call

    def _repeating(self, step: CapturedStep, call: CallArguments) -> SteadyReplay | None:
        return step.repeating(call, self._floats)

    def _record(self, call: CallArguments) -> Pending[CapturedStep]:
        recording = Recording()
        recorded = self._record_call(recording, call)
        return Pending(CapturedStep(*recorded, self._budget), recording.abandon)

    def _record_call(self, recording: Recording, call: CallArguments) -> RecordedCall:
        try:
            return record_call(self._function, call, recording, self._floats, self._title)
        except BaseException:
            recording.abandon()
            raise

    def memory_report(self, *args: P.args, **kwargs: P.kwargs) -> MemoryReport:
        """Report the memory that a call with these arguments needs, by kind, and the largest tensors. Nothing runs.

        If the function was not recorded for such a call, it is recorded for the report and rolled back. Raises CaptureError
        as a call does.
        """
        with self._lock:
            call = self._flatten(args, kwargs)
            step = self._known_step(call)
            if step is not None:
                return step.memory_report()
            recording = Recording()
            try:
                plan = plan_within(self._record_call(recording, call).captured, self._budget)
            finally:
                recording.abandon()
            return report(plan)


@overload
def jit(
    function: Callable[P, R], *, max_graphs: int = ..., warm_up: bool = ..., budget: int | None = ...
) -> Jitted[P, R]: ...
@overload
def jit(
    *, max_graphs: int = ..., warm_up: bool = ..., budget: int | None = ...
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
@top_level
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
