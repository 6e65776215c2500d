"""Record one call of a step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from polyhal.hal.compile.capture.replay_cache import NotReplayableError, Pending
from polyhal.hal.compile.recording import Recording
from polyhal.hal.core import dispatch
from polyhal.hal.errors import CaptureError, message
from polyhal.torch.steps.answers import answering
from polyhal.torch.steps.host import HostProgram, Slot
from polyhal.torch.steps.modes import FunctionWatch, OpWatch
from polyhal.torch.steps.numbers import LiveNumber
from polyhal.torch.steps.reach import Reach
from polyhal.torch.steps.results import Results
from polyhal.torch.steps.settings import LiveSettings, counting_schedulers_at_runs, noticing_optimizers
from polyhal.torch.steps.signature import Call
from polyhal.torch.steps.step import RecordedStep, dense_span
from polyhal.torch.steps.watch import LiveOperands, StepWatch


def record(
    function: Callable[..., Any], call: Call, optimizers: Iterable[Optimizer], live_settings: frozenset[str]
) -> Pending[RecordedStep]:
    """Record a call. `optimizers` are the known optimizers of the step.

    Raises CaptureError for an operation that cannot be recorded, and NotReplayableError for effects that a replay would not
    repeat. All state is then rolled back.
    """
    pending = PendingStep(function, call, optimizers, live_settings)
    try:
        pending.record()
    except BaseException:
        pending.abandon()
        raise
    return Pending(pending.step, pending.abandon)


class PendingStep:
    """A recording that can still be rolled back."""

    def __init__(
        self, function: Callable[..., Any], call: Call, optimizers: Iterable[Optimizer], live_settings: frozenset[str]
    ) -> None:
        self._function = function
        self._call = call
        self._before = _RandomStates()
        self._program = HostProgram(len(call.host))
        self._recording = Recording()
        self._watch = StepWatch(self._recording, self._program)
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

    def record(self) -> None:
        """Call the function, and make a step of the recording."""
        watch = self._watch
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(answering())
            stack.enter_context(self._recording)
            stack.enter_context(dispatch.executing(LiveOperands(self._recording.recorder, watch)))
            stack.enter_context(noticing_optimizers(self._settings.enter))
            stack.enter_context(counting_schedulers_at_runs(watch, self._settings))
            for optimizer in self._optimizers.values():
                self._settings.enter(optimizer)
            args, kwargs = self._arguments()
            with OpWatch(watch), FunctionWatch(watch):
                value = self._function(*args, **kwargs)
            self._settings.leave()
            results = Results(value, watch, self._call.tensors)
            watch.differentiated.clear()
            del value, args, kwargs
        changed = self._guards.changed()
        if changed:
            raise NotReplayableError(
                f"{changed} after the call", "change tensors in place, and update counters outside of the step"
            )
        finals = [leaf.grad for leaf, _ in watch.leaves.values()]
        captured = self._recording.finish()
        for gradient in finals:
            if gradient is not None:
                gradient.untyped_storage().moves = True  # type: ignore[attr-defined]
        self._program.roll_back(self._before.torch)
        self.step = RecordedStep(captured, watch, results, self._guards, finals)

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
    return CaptureError(
        message(
            "jit",
            f"an argument of shape {tuple(x.shape)} shares its storage with a tensor to which the step also refers directly",
            expected="a tensor that is either passed or referred to",
            fix="leave the argument out, or pass a clone",
        )
    )


class _RandomStates:
    """States of the host's random number generators."""

    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self._python = random.getstate()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Restore the generators of Python and NumPy."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
