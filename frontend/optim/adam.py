"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.creation import zeros
from polyhal.hal import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, dense_grad, state_dtype
from polyhal.tensor import Tensor


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient; weight decay, if any, is added to the gradient.

    Source: Kingma and Ba, arXiv:1412.6980.
    """

    decoupled = False
    """Whether weight decay acts on the parameters directly."""

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
            first, second = (zeros(p.shape, state_dtype(p), p.device) for _ in range(2))
            state = self.state[p] = {"step": 0, "exp_avg": first, "exp_avg_sq": second}
        return state

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        beta1, beta2 = (float(b) for b in group["betas"])
        op = OPS["adam_step"]
        # Parameters may have missed steps for want of a gradient: each launch takes those of one step count.
        for step, ps in batches(params, lambda p: self._state(p)["step"] + 1):
            states = [self.state[p] for p in ps]
            firsts, seconds = [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]
            numbers = (float(group["lr"]), beta1, beta2, float(group["eps"]), float(group["weight_decay"]))
            inputs = (*ps, *map(dense_grad, ps), *firsts, *seconds, *numbers, 1 - beta1**step, 1 - beta2**step)
            dispatch.apply_into(op, inputs, (len(ps), self.decoupled), (*ps, *firsts, *seconds))
            for state in states:
                state["step"] = step


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
