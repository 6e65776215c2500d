"""`polyhal.torch.jit`: record functions of PyTorch programs once per signature, and replay them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import torch
from torch.optim import Optimizer

from polyhal.hal.compile.capture.difference import Difference
from polyhal.hal.compile.capture.replay_cache import FinishedCall, Pending
from polyhal.hal.compile.replayed_function import ReplayedFunction
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import CaptureError
from polyhal.torch import private
from polyhal.torch.device import NAME
from polyhal.torch.reads import Reads
from polyhal.torch.reporting import COUNTERS
from polyhal.torch.steps.record import record
from polyhal.torch.steps.refusals import as_reason
from polyhal.torch.steps.settings import noticing_optimizers
from polyhal.torch.steps.signature import Call
from polyhal.torch.steps.step import RecordedStep

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords

P = ParamSpec("P")
R = TypeVar("R")


class RecordedFunction(ReplayedFunction[P, R, Call, RecordedStep]):
    """A function that is recorded and replayed. See `jit`."""

    def __init__(self, function: Callable[P, R], max_graphs: int, warm_up: bool, strict: bool) -> None:
        super().__init__(function, max_graphs, warm_up, "polyhal.torch.jit")
        self._is_strict = strict
        self._live_settings = frozenset({"lr"})
        """Names of the optimizer settings that each run reads; others are added when they change."""
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._numbers = Reads()

    def _may_replay(self) -> bool:
        """Return whether this is a plain call: outside other recordings, dispatch modes and anomaly detection."""
        return (
            super()._may_replay()
            and not private.is_watched()
            and not torch.is_anomaly_enabled()
            and not torch.compiler.is_compiling()
        )

    def _flatten(self, args: Arguments, kwargs: Keywords) -> Call:
        is_cast = torch.is_autocast_enabled(NAME)
        modes = (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.get_autocast_dtype(NAME) if is_cast else None,
            settings.result_key,
        )
        try:
            return Call(args, kwargs, modes)
        except CaptureError as error:
            if self._is_strict:
                raise
            raise as_reason(error) from None

    def _warm_up(self, args: Arguments, kwargs: Keywords) -> Any:
        with noticing_optimizers(self._optimizers.add), self._numbers.call():
            return super()._warm_up(args, kwargs)

    def _run_eagerly(self, call: Call) -> Any:
        with self._numbers.call():
            return super()._run_eagerly(call)

    def _record(self, call: Call) -> Pending[RecordedStep] | FinishedCall:
        with self._numbers.call():
            return record(self._function, call, self._optimizers, self._live_settings, self._numbers, self._is_strict)

    def _note_eager(self, reason: Difference) -> None:
        COUNTERS.note_eager_step(self._title.removeprefix("polyhal.torch.jit "), reason.problem)
        super()._note_eager(reason)

    def _before_recording(self, steps: list[RecordedStep]) -> None:
        """Drop steps whose memory was replaced, and let runs look up such memory and the settings that have changed."""
        for step in list(steps):
            moved = step.moved()
            for storage in moved:
                storage.moves = True
            if moved:
                steps.remove(step)
        changed = steps[-1].guards.changed_settings() if steps else frozenset()
        if changed - self._live_settings:
            self._live_settings |= changed
            steps.clear()


@overload
def jit(
    function: Callable[P, R], *, max_graphs: int = ..., warm_up: bool = ..., strict: bool = ...
) -> RecordedFunction[P, R]: ...
@overload
def jit(
    *, max_graphs: int = ..., warm_up: bool = ..., strict: bool = ...
) -> Callable[[Callable[P, R]], RecordedFunction[P, R]]: ...
def jit(
    function: Callable[P, R] | None = None, *, max_graphs: int = 8, warm_up: bool = True, strict: bool = False
) -> RecordedFunction[P, R] | Callable[[Callable[P, R]], RecordedFunction[P, R]]:
    """Record what a function of a PyTorch program does on Polyhal's device as one graph, and replay it.

    A function may be a whole training step: forward, `backward()`, the optimizer. The first call runs op by op (unless
    `warm_up` is False), so that lazily created state exists; the second is recorded and replayed; the third is recorded again,
    to check that the function does the same. Later calls only replay, with bitwise equal results.

    Tensor and float arguments may differ from call to call. Other shapes or arguments, `train()` and `eval()`, and new
    parameters are detected and recorded separately; at most `max_graphs` signatures, and steps of each, are kept. CPU tensors
    and learning rates are read at each run. Results do not require gradients. Calls from several threads run one after another.

    A call that cannot be recorded, because Python reads the value of a tensor of the device for example, runs to its end with
    the results of an eager call: the recorded part runs, and the rest runs eagerly. Later such calls run eagerly. One warning
    names the line, the reason and the way that can be recorded; `explain()` and `report()` list all reasons.
    Effects that a replay would not repeat are treated alike. If `strict` is True, an operation that cannot be recorded raises
    CaptureError instead; parameters, gradients and optimizers are then rolled back.
    """
    if function is None:
        return lambda f: RecordedFunction(f, max_graphs, warm_up, strict)
    return RecordedFunction(function, max_graphs, warm_up, strict)
