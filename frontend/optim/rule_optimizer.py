"""Optimizers whose step is one op over all parameters: the base class, and checks of settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, count_step, dense_grad, setting, zero_state
from polyhal.tensor import Tensor


class RuleOptimizer(Optimizer):
    """Base of optimizers whose op has an update rule (see hal/ops/optim/update_rule.py).

    Subclasses name the op and the settings that are its numbers, and say which states and flags a group has.
    """

    skippable = True
    op: ClassVar[str]
    numbers: ClassVar[tuple[str, ...]]
    """Settings in the order of the rule's numbers; `name[i]` is an element of a pair."""

    def __init__(self, params: Params, defaults: dict[str, Any], *, differentiable: bool = False) -> None:
        refuse_differentiable(self, differentiable)
        super().__init__(params, defaults)

    def states(self, group: Group) -> tuple[str, ...]:
        """Return the names of the states of each parameter, in the rule's order."""
        raise NotImplementedError

    def flags(self, group: Group) -> tuple[Any, ...]:
        """Return the flags of the op for a group."""
        return ()

    def initial(self, name: str, p: Tensor, group: Group) -> Tensor:
        """Return a parameter's state before the first step."""
        return zero_state(p)

    def values(self, group: Group, states: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
        """Return the rule's numbers, as runtime scalars."""
        return tuple(setting(group, name) for name in self.numbers)

    def _state(self, p: Tensor, group: Group) -> dict[str, Any]:
        state = self.state.get(p)
        if not state:
            state = self.state[p] = {"step": 0, **{n: self.initial(n, p, group) for n in self.states(group)}}
        return state

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        names = self.states(group)
        # Parameters without gradients miss steps: each launch takes parameters of one step count.
        for _, ps in batches(params, lambda p: self._state(p, group)["step"]):
            states = [self.state[p] for p in ps]
            kept = [s[name] for name in names for s in states]
            before = states[0]["step"]
            on_host = [(s, {n: s[n] for n in self.host_state if n in s}) for s in states] if self.host_state else []
            try:
                count_step(states)
                step = dispatch.runtime_scalar(partial(states[0].__getitem__, "step"), "step", increment=1)
                number = self.device_step(step, ps[0].device)
                grads = [gradient(p, maximize=group.get("maximize", False)) for p in ps]
                numbers = (step if number is None else number, *self.values(group, states))
                self.run(group, ps, grads, kept, numbers, counted=number is not None)
            except BaseException:  # the device has updated nothing, so that the step can be repeated
                for state in states:
                    state["step"] = before
                for state, values in on_host:
                    for name in self.host_state:
                        state.pop(name, None)
                    state.update(values)
                raise

    def run(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        numbers: tuple[Any, ...],
        *,
        counted: bool,
    ) -> None:
        """Run the op on parameters of one dtype and step count. `counted` means that the step is a tensor."""
        bound = (len(params), *self.flags(group), counted)
        dispatch.apply_into(OPS[self.op], (*params, *grads, *states, *numbers), bound, (*params, *states))

    def subtract_steps(self, steps: int) -> None:
        for state in filter(None, self.state.values()):
            state["step"] -= steps


def gradient(p: Tensor, *, maximize: bool) -> Tensor:
    """Return a parameter's gradient, negative if the objective is to grow."""
    grad = dense_grad(p)
    return ops.negative(grad) if maximize else grad


def check_settings(owner: object, *, betas: tuple[float, float] | None = None, **settings: float) -> None:
    """Raise ValueError for a negative setting, or for betas outside [0, 1)."""
    name = type(owner).__name__
    for setting_name, value in settings.items():
        if not value >= 0:
            raise ValueError(message(name, f"{setting_name} is {value}", expected="0 or more"))
    if betas is not None and not all(0 <= b < 1 for b in betas):
        raise ValueError(message(name, f"betas are {betas}", expected="numbers from 0 to below 1"))


def refuse_differentiable(owner: object, differentiable: bool) -> None:
    """Raise ValueError if steps are to be on the tape: they overwrite the parameters."""
    if differentiable:
        fix = "write the update with tensor ops"
        raise ValueError(message(type(owner).__name__, "differentiable is True", expected="False", fix=fix))
