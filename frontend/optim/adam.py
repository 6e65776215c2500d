"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from polyhal.optim.optimizer import Group, Params
from polyhal.optim.rule_optimizer import RuleOptimizer, check_settings


class Adam(RuleOptimizer):
    """Adam: steps scaled by running moments of the gradient; weight decay is added to the gradient.

    `amsgrad` divides by the largest squares so far. `foreach`, `fused` and `capturable` are accepted: all parameters take one
    launch, captured or not. Sources: Kingma and Ba, arXiv:1412.6980; Reddi, Kale and Kumar, ICLR 2018.
    """

    op = "adam_step"
    numbers = ("lr", "betas[0]", "betas[1]", "eps", "weight_decay")
    decoupled = False
    """True if weight decay is applied to the parameters instead of the gradients."""

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
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        }
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) * group.get("amsgrad", False)))

    def flags(self, group: Group) -> tuple[Any, ...]:
        return bool(group.get("decoupled_weight_decay", self.decoupled)), bool(group.get("amsgrad", False))


class AdamW(Adam):
    """Adam with weight decay applied to the parameters instead of the gradients.

    Source: Loshchilov and Hutter, arXiv:1711.05101.

    >>> p = polyhal.tensor([1.0], requires_grad=True)
    >>> optimizer = polyhal.optim.AdamW([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> round(p.item(), 4)  # 1 - lr * weight_decay - lr
    0.899
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
