"""Rprop and averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.optim.optimizer import Group, Params, state_dtype, zero_state
from polyhal.optim.rule_optimizer import RuleOptimizer, check_settings
from polyhal.tensor import Tensor


class Rprop(RuleOptimizer):
    """Resilient backpropagation: each element's step grows while the sign of its gradient stays. For whole batches.

    Source: Riedmiller and Braun, IEEE ICNN 1993. Raises ValueError unless one of `etas` is below 1 and the other above.
    """

    op = "rprop_step"
    numbers = ("etas[0]", "etas[1]", "step_sizes[0]", "step_sizes[1]")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(self, lr=lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(message("Rprop", f"etas are {etas}", expected="one below 1 and one above"))
        settings = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("prev", "step_size")

    def initial(self, name: str, p: Tensor, group: Group) -> Tensor:
        if name == "prev":
            return zero_state(p)
        with dispatch.executing(dispatch.EAGER):
            return ops.full(p.shape, float(group["lr"]), state_dtype(p), device=p.device)


class ASGD(RuleOptimizer):
    """Averaged SGD: `state[p]["ax"]` is the mean of the parameter since step `t0`.

    Source: Polyak and Juditsky, SIAM J. Control Optim. 30 (1992).
    """

    host_state = ("eta", "mu")
    op = "asgd_step"
    numbers = ("lr", "lambd", "alpha", "t0", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_settings(self, lr=lr, weight_decay=weight_decay)
        settings = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("ax",)

    def state_dict(self) -> dict[str, Any]:
        """Return state and settings in PyTorch's form, with the rate and the weight of the mean in the next step."""
        result = super().state_dict()
        for group in result["param_groups"]:
            rate, decay, power, begin = (float(group[name]) for name in ("lr", "lambd", "alpha", "t0"))
            for state in (result["state"][n] for n in group["params"] if n in result["state"]):
                state["eta"] = rate / (1 + decay * rate * state["step"]) ** power
                state["mu"] = 1 / max(1.0, state["step"] - begin)
        return result
