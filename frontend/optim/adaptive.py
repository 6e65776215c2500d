"""Optimizers that divide the gradient by running or summed squares: Adagrad, Adadelta, RMSprop."""

from __future__ import annotations

from typing import Any

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.optim.optimizer import Group, Params, state_dtype
from polyhal.optim.rule_optimizer import RuleOptimizer, check_settings
from polyhal.tensor import Tensor


class Adagrad(RuleOptimizer):
    """Adagrad: each element's rate falls with the sum of its squared gradients.

    Source: Duchi, Hazan and Singer, JMLR 12 (2011). `foreach` and `fused` are accepted: all parameters take one launch anyway.
    """

    op = "adagrad_step"
    numbers = ("lr", "lr_decay", "weight_decay", "eps")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        check_settings(self, **settings)
        super().__init__(params, {**settings, "maximize": maximize}, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def initial(self, name: str, p: Tensor, group: Group) -> Tensor:
        with dispatch.executing(dispatch.EAGER):
            return ops.full(p.shape, float(group["initial_accumulator_value"]), state_dtype(p), device=p.device)


class Adadelta(RuleOptimizer):
    """Adadelta: steps in the units of the parameter, from running squares of gradients and steps.

    Source: Zeiler, arXiv:1212.5701.
    """

    op = "adadelta_step"
    numbers = ("lr", "rho", "eps", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, betas=(rho, 0.0))
        settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")


class RMSprop(RuleOptimizer):
    """RMSprop: the gradient divided by the root of its running squares, or with `centered` by its deviation.

    Source: Tieleman and Hinton, lecture 6.5 of "Neural networks for machine learning" (2012).
    """

    op = "rmsprop_step"
    numbers = ("lr", "alpha", "eps", "weight_decay", "momentum")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        settings: dict[str, Any] = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
        }
        check_settings(self, **settings)
        defaults = {**settings, "centered": centered, "maximize": maximize}
        super().__init__(params, defaults, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return (
            "square_avg",
            *(("momentum_buffer",) if group["momentum"] else ()),
            *(("grad_avg",) * group["centered"]),
        )

    def flags(self, group: Group) -> tuple[Any, ...]:
        return bool(group["centered"]), bool(group["momentum"])
