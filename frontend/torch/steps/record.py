"""Record one call of a step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from polyhal.hal.compile.capture.replay_cache import FinishedCall, NotReplayableError, Pending
from polyhal.hal.compile.recording import Recording
from polyhal.hal.core import dispatch
from polyhal.hal.errors import CaptureError
from polyhal.torch.reads import Reads
from polyhal.torch.steps import active
from polyhal.torch.steps.answers import answer
from polyhal.torch.steps.host import HostProgram, Slot, raise_reason
from polyhal.torch.steps.host_arrays import plain
from polyhal.torch.steps.host_functions import declare_known
from polyhal.torch.steps.modes import FunctionWatch, OpWatch
from polyhal.torch.steps.numbers import LiveNumber
from polyhal.torch.steps.operands import LiveOperands
from polyhal.torch.steps.reach import Reach
from polyhal.torch.steps.refusals import RefusedError, as_reason
from polyhal.torch.steps.results import Results
from polyhal.torch.steps.settings import LiveSettings, noticing_optimizers, put_off_schedulers
from polyhal.torch.steps.signature import Call
from polyhal.torch.steps.step import RecordedStep, dense_span
from polyhal.torch.steps.tree import TREE
from polyhal.torch.steps.watch import Memory, StepWatch


def record(
    function: Callable[..., Any],
    call: Call,
    optimizers: Iterable[Optimizer],
    live_settings: frozenset[str],
    numbers: Reads,
    is_strict: bool,
) -> Pending[RecordedStep] | FinishedCall:
    """Record a call. `optimizers` are the known optimizers of the step, `numbers` the numbers that its calls read.

    An operation that cannot be recorded ends the recording: its ops run, and the rest of the call runs eagerly. Where that is
    not possible, all state is rolled back and NotReplayableError raised; in a strict step CaptureError.
    """
    try:
        pending = PendingStep(function, call, optimizers, live_settings, numbers, is_strict)
    except CaptureError as error:
        if is_strict:
            raise
        raise as_reason(error) from None
    try:
        finished = pending.record()
    except BaseException as error:
        if pending.is_left:  # an error of the program itself
            raise
        pending.abandon()
        if is_strict or isinstance(error, NotReplayableError) or not isinstance(error, Exception):
            raise
        failure = error.with_traceback(None)
    else:
        return finished or Pending(pending.step, pending.abandon)
    if isinstance(failure, CaptureError):
        raise as_reason(failure)
    # Raises the error again if it is one of the program.
    return FinishedCall(
        function(*call.args, **call.kwargs), NotReplayableError(_in_recording(failure), is_certain=True)
    )


def _in_recording(error: Exception) -> str:
    return f"recording it raises {type(error).__name__} ({error}), which an eager call does not"


class PendingStep:
    """A recording that can still be rolled back."""

    def __init__(
        self,
        function: Callable[..., Any],
        call: Call,
        optimizers: Iterable[Optimizer],
        live_settings: frozenset[str],
        numbers: Reads,
        is_strict: bool,
    ) -> None:
        self._function = function
        self._call = call
        self._before = _RandomStates()
        self._program = HostProgram(len(call.host))
        self._recording = Recording()
        self._watch = StepWatch(self._recording, self._program, numbers, is_strict)
        self._reason: NotReplayableError | None = None
        self._operands = LiveOperands(self._recording.recorder, self._watch)
        self._settings = LiveSettings(self._watch, live_settings)
        reach = Reach(live_settings)
        reach.visit_all({"the step": function, **{f"argument {i}": x for i, x in enumerate(call.roots)}})
        reach.visit_all({type(o).__name__: o for o in optimizers})
        self._guards = reach.guards
        shared = self._guards.sharing(call.tensors)
        if shared is not None:
            raise _refers_to_argument(shared)
        self._optimizers = {id(o): o for o in (*reach.optimizers, *optimizers)}
        self._states = [(o, {p: dict(s) for p, s in o.state.items()}) for o in self._optimizers.values()]
        for parameter in reach.parameters:
            self._watch.note_leaf(parameter)

    @property
    def is_left(self) -> bool:
        """True after the recording ended early, when nothing can be rolled back."""
        return self._watch.is_left

    def record(self) -> FinishedCall | None:
        """Call the function, and make a step of the recording. Returns the results of a call whose recording ended early."""
        watch = self._watch
        with ExitStack() as stack:
            stack.enter_context(self._leaving())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(active.recording(watch, (answer, put_off_schedulers, declare_known)))
            stack.enter_context(self._recording)
            stack.enter_context(dispatch.executing(self._operands))
            stack.enter_context(noticing_optimizers(self._settings.enter))
            for optimizer in self._optimizers.values():
                self._settings.enter(optimizer)
            args, kwargs = self._arguments()
            with OpWatch(watch), FunctionWatch(watch):
                value = self._function(*args, **kwargs)
            if not watch.is_left:
                try:
                    results = self._results(value)
                    watch.mid_step.finish()
                except NotReplayableError as reason:
                    self._leave(reason)
                except RefusedError as error:
                    watch.refuse(error)
            watch.differentiated.clear()
            if self._reason is not None:
                return FinishedCall(self._settled(value), self._reason)
            del value, args, kwargs
        finals = [leaf.grad for leaf, _ in watch.leaves.values()]
        captured = self._recording.finish()
        for gradient in finals:
            if gradient is not None:
                gradient.untyped_storage().moves = True  # type: ignore[attr-defined]
        self._program.roll_back(self._before.torch)
        self.step = RecordedStep(captured, watch, results, self._guards, finals)
        return None

    def _results(self, value: Any) -> Results:
        """Describe the results of the step. Raises NotReplayableError if it has changed something that a replay would not."""
        self._settings.leave()
        changed = self._guards.changed()
        if changed:
            raise NotReplayableError(
                f"{changed} after the call", "change tensors in place, and update counters outside of the step"
            )
        return Results(value, self._watch, self._call.tensors)

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Let the recording end early in the block. Afterwards nothing keeps it alive."""
        watch = self._watch
        watch.leave = self._program.leave = self._leave
        watch.graph_inputs = self._inputs
        watch.renew_settings, nothing = self._settings.renew, watch.renew_settings
        try:
            yield
        finally:
            watch.leave = self._program.leave = raise_reason
            watch.graph_inputs = list
            watch.renew_settings = nothing

    def _leave(self, reason: NotReplayableError) -> None:
        """End the recording early: run what was recorded, and let the rest of the call run eagerly.

        Raises the errors of the recorded ops.
        """
        watch = self._watch
        self._settings.release()
        watch.is_left = True
        try:
            with watch.quiet():
                self._program.catch_up()
                self._operands.base = self._recording.leave(self._inputs())
        except BaseException:
            watch.is_left = False
            raise
        self._reason = reason.with_traceback(None)

    def _inputs(self) -> list[Any]:
        """Return the inputs of the graph in this call."""
        uploads = iter(self._watch.uploads)
        return [
            dense_span(self._call.tensors[x])
            if isinstance(x, int)
            else x.storage.root
            if isinstance(x, Memory)
            else next(uploads)
            for x in self._watch.inputs
        ]

    def _settled(self, value: Any) -> Any:
        """Return the results of an eager call: plain numbers for the live ones, also where the call has stored them."""
        self._settings.settle()
        self._guards.settle()
        return TREE.replaced(value, plain)

    def abandon(self) -> None:
        """Restore all known state that the call changed."""
        self._settings.abandon()
        self._recording.abandon()
        for leaf, gradient in self._watch.leaves.values():
            if leaf.grad is not gradient:
                leaf.grad = gradient
        for optimizer, states in self._states:
            optimizer.state.clear()
            optimizer.state.update(states)
        self._guards.restore()
        self._program.roll_back(self._before.torch)
        self._before.restore()

    def _arguments(self) -> tuple[Any, Any]:
        """Return the arguments for the function: inputs of the graph, CPU tensors in slots, and live numbers."""
        watch, positions, slots = self._watch, iter(range(len(self._call.tensors))), iter(range(len(self._call.host)))

        def tensor(x: torch.Tensor) -> torch.Tensor:
            if x.device.type == "cpu":
                watch.fill(Slot(next(slots)), x)
                return x
            watch.arguments.add(id(x.untyped_storage()))
            with dispatch.executing(dispatch.EAGER):
                span = dense_span(x)
            self._recording.argument(span)
            watch.inputs.append(next(positions))
            return x

        def number(x: float) -> LiveNumber:
            index = next(slots)
            self._program.values[index] = x
            return watch.number(lambda values: values[index], f"float {index}", "argument", index)

        return self._call.mapped(tensor, number)


def _refers_to_argument(x: torch.Tensor) -> CaptureError:
    return RefusedError(
        f"an argument of shape {tuple(x.shape)} shares its storage with a tensor to which the step also refers directly",
        expected="a tensor that is either passed or referred to",
        fix="leave the argument out, or pass a clone",
    )


class _RandomStates:
    """States of the host's random number generators."""

    def __init__(self) -> None:
        self.torch = torch.default_generator.get_state()
        self._python = random.getstate()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Restore the generators of Python and NumPy."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
