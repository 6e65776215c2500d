"""Gradients that flow on from the results of a captured step: its backward pass is a captured step too.

The backward pass is recorded right after the step, while its tape is there, and made ready to run when it is first needed. The
step returns, besides its results, the values that the backward pass will read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.autograd import no_grad
from polyhal.autograd.engine import differentiate
from polyhal.autograd.function import attach, opaque
from polyhal.autograd.rules import zeros
from polyhal.autograd.tape import GradNode, SavedInput
from polyhal.hal import dispatch
from polyhal.hal.capture.recorder import StepRecorder
from polyhal.hal.capture.result import CapturedConstant, CapturedGraph, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import contiguous
from polyhal.hal.scheduler.executable import Executable
from polyhal.tensor import Tensor, wrap


class Backward:
    """The backward pass of a captured step, from gradients of its results to gradients of leaves."""

    def __init__(
        self,
        captured: CapturedGraph,
        results: Sequence[int],
        leaves: Sequence[Tensor],
        kept: Sequence[StepInput | int],
        arguments: Sequence[Tensor],
    ) -> None:
        """`results` are the places of differentiable results; `leaves` what they depend on; `kept` is read besides."""
        self._captured = captured
        self._results = results
        self._leaves = leaves
        self._kept = kept
        self._numbers = _frozen(captured)
        self._executable: Executable | None = None
        self._op = opaque("captured_step", len(results))
        places = {id(x): i for i, x in enumerate(arguments)}
        self._places = {i: places[id(x)] for i, x in enumerate(leaves) if id(x) in places}
        """Positions among the arguments of leaves that are arguments."""

    @classmethod
    def record(cls, capture: StepRecorder, results: Sequence[Tensor], arguments: Sequence[Tensor]) -> Backward | None:
        """Record the way back from the results of `capture`; None if there is none, or it has been gone already.

        `arguments` are the step's, as it saw them.
        """
        wanted = [i for i, x in enumerate(results) if x.requires_grad and x.node is not None]
        outputs = [results[i] for i in wanted]
        leaves = _leaves(outputs)
        if not leaves:
            return None
        following = StepRecorder(capture)
        seeds = [following.add_fake_input(x.device, contiguous(x.dtype, x.shape)) for x in outputs]
        hooks = [leaf.hooks for leaf in leaves]
        for leaf in leaves:
            leaf.hooks = None  # they are called where the gradients go on
        try:
            with dispatch.executing(following), no_grad():
                found = differentiate(outputs, seeds, leaves)
                reached = [(leaf, g) for leaf, g in zip(leaves, found, strict=True) if g is not None]
                values = [following.value_of(g) for _, g in reached]
        finally:
            for leaf, kept in zip(leaves, hooks, strict=True):
                leaf.hooks = kept
        del found
        leaves = [leaf for leaf, _ in reached]
        del reached
        return cls(following.finish(values), wanted, leaves, following.forwarded, arguments)

    def values(self) -> list[int]:
        """Numbers of the values that the step must return besides its results."""
        return [x for x in self._kept if isinstance(x, int)]

    def attach(self, made: list[Tensor], tensors: Sequence[Tensor]) -> None:
        """Put the results among what a run `made` on the tape. The rest are values for the backward pass."""
        extra = len(self.values())
        values = iter(made[len(made) - extra :])
        kept = [tensors[k.position] if isinstance(k, StepInput) else next(values) for k in self._kept]
        numbers = [live.value for live, _ in self._numbers]
        held = [(s.buffer, s.buffer.version) for s in self._captured.sources if isinstance(s, CapturedConstant)]
        leaves = tuple(tensors[self._places[i]] if i in self._places else x for i, x in enumerate(self._leaves))
        outs = tuple(made[i] for i in self._results)
        node = attach(self._op, leaves, outs, partial(self._run, numbers, held))
        node.saved["kept"] = tuple(SavedInput(x, x.buffer.version) for x in kept)

    def _run(
        self, numbers: list[Any], held: list[Any], node: GradNode, grads: list[Any], needs: tuple[bool, ...]
    ) -> Any:
        """The gradients of the leaves; the rule of the node."""
        if dispatch.thread.grad_enabled:
            raise AutogradError(
                message(
                    "jit",
                    "the gradient of a captured step is differentiated again",
                    fix="differentiate inside the captured function, or call the function without jit",
                )
            )
        dispatch.thread.executor.require_execution(
            "jit",
            "a captured function was called outside and backward() inside of another captured function",
            fix="call both inside",
        )
        if any(buffer.version != version for buffer, version in held):
            raise AutogradError(
                message(
                    "jit",
                    "a parameter was changed between a captured forward pass and its backward pass",
                    fix="call backward() before the optimizer's step",
                )
            )
        if self._executable is None:
            self._executable = Executable(self._captured)
        seeds = [zeros(s, node.device) if g is None else g for g, s in zip(grads, node.outputs, strict=True)]
        seeds = [g if g.is_contiguous else g.clone() for g in seeds]
        for (_, box), value in zip(self._numbers, numbers, strict=True):
            box[0] = value
        outputs = self._executable.run([*seeds, *node.load("kept")])
        found = [wrap(device, buffer, ref) for device, buffer, ref in outputs]
        return tuple(g if needed else None for g, needed in zip(found, needs, strict=True))


def _frozen(captured: CapturedGraph) -> list[tuple[RuntimeScalar, list[Any]]]:
    """Replace the live numbers of a backward pass by what they were when the step ran, which the boxes are filled with."""
    found: list[tuple[RuntimeScalar, list[Any]]] = []
    for i, source in enumerate(captured.sources):
        if isinstance(source, RuntimeScalar):
            box = [source.value]
            found.append((source, box))
            number = RuntimeScalar(partial(box.__getitem__, 0), source.name)
            captured.sources[i] = number
            captured.replay_actions.append(number.refresh)
    return found


def _leaves(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The leaves that tensors depend on; none if a part of the tape was freed."""
    found: dict[int, Tensor] = {}
    pending = [x.node for x in outputs]
    seen = set(pending)
    while pending:
        node = pending.pop()
        assert node is not None
        if node.freed:
            return []
        for parent in node.parents:
            if isinstance(parent, Tensor):
                found[id(parent)] = parent
            elif parent is not None and parent[0] not in seen:
                seen.add(parent[0])
                pending.append(parent[0])
    return list(found.values())


__all__ = ["Backward"]
