"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, setting, zero_state
from polyhal.optim.rule_optimizer import check_settings, gradient, refuse_differentiable
from polyhal.tensor import Tensor


class Adam(Optimizer):
    """Adam: steps scaled by running moments of the gradient; weight decay is added to the gradient.

    `amsgrad` divides by the largest squares so far. `foreach`, `fused` and `capturable` are accepted: all parameters take one
    launch, captured or not. Sources: Kingma and Ba, arXiv:1412.6980; Reddi, Kale and Kumar, ICLR 2018.
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
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, betas=betas)
        refuse_differentiable(self, differentiable)
        settings = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad, "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        }  # fmt: skip
        super().__init__(params, settings)

    def _state(self, p: Tensor, amsgrad: bool) -> dict[str, Any]:
        state = self.state.get(p)
        if not state:
            state = self.state[p] = {"step": 0, "exp_avg": zero_state(p), "exp_avg_sq": zero_state(p)}
            if amsgrad:
                state["max_exp_avg_sq"] = zero_state(p)
        return state

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        amsgrad, decoupled = group.get("amsgrad", False), group.get("decoupled_weight_decay", self.decoupled)
        numbers = tuple(setting(group, n) for n in ("lr", "betas[0]", "betas[1]", "eps", "weight_decay"))
        names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ()))
        # Parameters without gradients miss steps: each launch takes parameters of one step count.
        for _, ps in batches(params, lambda p: self._state(p, amsgrad)["step"]):
            states = [self.state[p] for p in ps]
            kept = [s[name] for name in names for s in states]
            grads = [gradient(p, maximize=group.get("maximize", False)) for p in ps]
            dispatch.on_replay(partial(_count, states))
            step = dispatch.runtime_scalar(partial(states[0].__getitem__, "step"), "step", increment=1)
            number = self.device_step(step, ps[0].device)
            counted = number is not None
            tensors = (*ps, *grads, *kept)
            if amsgrad:
                inputs: tuple[Any, ...] = (*tensors, number if counted else step, *numbers)
                dispatch.apply_into(OPS["amsgrad_step"], inputs, (len(ps), decoupled, counted), (*ps, *kept))
                continue
            _, beta1, beta2, _, _ = numbers
            corrections = (number,) if counted else (1 - beta1**step, 1 - beta2**step)
            inputs = (*tensors, *numbers, *corrections)
            dispatch.apply_into(OPS["adam_step"], inputs, (len(ps), decoupled, counted), (*ps, *kept))

    def subtract_steps(self, steps: int) -> None:
        for state in self.state.values():
            state["step"] -= steps


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
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, differentiable=differentiable
        )
