"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, dense_grad, setting, zero_state
from polyhal.tensor import Tensor


class Adam(Optimizer):
    """Adam: steps scaled by running moments of the gradient; weight decay is added to the gradient.

    Source: Kingma and Ba, arXiv:1412.6980.
    """

    skippable = True
    decoupled = False
    """Whether weight decay is applied to the parameters instead of the gradients."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(message(type(self).__name__, f"{name} is {value}", expected="0 or more"))
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(message(type(self).__name__, f"betas are {betas}", expected="numbers from 0 to below 1"))
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _state(self, p: Tensor) -> dict[str, Any]:
        state = self.state.get(p)
        if not state:
            state = self.state[p] = {"step": 0, "exp_avg": zero_state(p), "exp_avg_sq": zero_state(p)}
        return state

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        beta1, beta2 = (dispatch.runtime_scalar(partial(_beta, group, i), f"beta{i + 1}") for i in (0, 1))
        numbers = (setting(group, "lr"), beta1, beta2, setting(group, "eps"), setting(group, "weight_decay"))
        op = OPS["adam_step"]
        # Parameters without gradients miss steps: each launch takes parameters of one step count.
        for _, ps in batches(params, lambda p: self._state(p)["step"]):
            states = [self.state[p] for p in ps]
            firsts, seconds = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
            dispatch.on_replay(partial(_count, states))
            step = dispatch.runtime_scalar(partial(states[0].__getitem__, "step"), "step", increment=1)
            number = self.device_step(step, ps[0].device)
            corrections = (1 - beta1**step, 1 - beta2**step) if number is None else (number,)
            inputs = (*ps, *map(dense_grad, ps), *firsts, *seconds, *numbers, *corrections)
            dispatch.apply_into(op, inputs, (len(ps), self.decoupled, number is not None), (*ps, *firsts, *seconds))

    def subtract_steps(self, steps: int) -> None:
        for state in self.state.values():
            state["step"] -= steps


def _beta(group: Group, index: int) -> float:
    return float(group["betas"][index])


def _count(states: Sequence[dict[str, Any]]) -> None:
    for state in states:
        state["step"] += 1


class AdamW(Adam):
    """Adam with weight decay applied to the parameters instead of the gradients.

    Source: Loshchilov and Hutter, arXiv:1711.05101.
    """

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
