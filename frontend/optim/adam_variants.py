"""Variants of Adam: Adamax, NAdam, RAdam, Lion, and LAMB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.creation import empty_like
from polyhal.hal.core import dispatch
from polyhal.optim.formula import ElementFormula, Sums
from polyhal.optim.optimizer import Group, Params, setting
from polyhal.optim.rule_optimizer import RuleOptimizer, check_settings
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import Numeric

Betas = tuple[float, float]


class Adamax(RuleOptimizer):
    """Adam with the largest gradient in place of the root of squares. Source: arXiv:1412.6980, section 7."""

    op = "adamax_step"
    numbers = ("lr", "betas[0]", "betas[1]", "eps", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, betas=betas)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")


class RAdam(RuleOptimizer):
    """Adam whose first steps are not scaled, while the variance of the scale is large. Source: arXiv:1908.03265."""

    op = "radam_step"
    numbers = ("lr", "betas[0]", "betas[1]", "eps", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, betas=betas)
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def flags(self, group: Group) -> tuple[Any, ...]:
        return (bool(group["decoupled_weight_decay"]),)


class NAdam(RuleOptimizer):
    """Adam with Nesterov's momentum, on a schedule. Source: Dozat, ICLR workshop 2016."""

    skippable = False  # the schedule's product is kept on the host
    host_state = ("mu_product",)
    op = "nadam_step"
    numbers = ("lr", "betas[0]", "betas[1]", "eps", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay, betas=betas)
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, differentiable=differentiable)

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def flags(self, group: Group) -> tuple[Any, ...]:
        return (bool(group["decoupled_weight_decay"]),)

    def _state(self, p: Tensor, group: Group) -> dict[str, Any]:
        state = super()._state(p, group)
        state.setdefault("mu_product", 1.0)  # a step that is being recorded reads it before it changes
        return state

    def values(self, group: Group, states: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
        products = _MomentumProducts(group, states)
        dispatch.on_replay(products.advance, products.restore)
        first = states[0]
        gradient_weight = dispatch.runtime_scalar(
            lambda: (1 - _momentum(group, first["step"])) / _passed(first["mu_product"]), "gradient_weight"
        )
        momentum_weight = dispatch.runtime_scalar(
            lambda: (
                _momentum(group, first["step"] + 1) / _passed(first["mu_product"] * _momentum(group, first["step"] + 1))
            ),
            "momentum_weight",
        )
        return (*super().values(group, states), gradient_weight, momentum_weight)


def _momentum(group: Group, step: int) -> float:
    return float(group["betas"][0] * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"])))


def _passed(product: float) -> float:
    """Return the weight of all gradients so far. Before the first step, which a recording reads, it is 0, and replaced by 1."""
    return 1 - product or 1.0


class _MomentumProducts:
    """The products of all momenta so far, in the states of parameters, with their values before the last step."""

    def __init__(self, group: Group, states: Sequence[dict[str, Any]]) -> None:
        self._group = group
        self._states = states
        self._before: list[float] = []

    def advance(self) -> None:
        """Multiply by the momentum of this step."""
        self._before = [float(state["mu_product"]) for state in self._states]
        for state, before in zip(self._states, self._before, strict=True):
            state["mu_product"] = before * _momentum(self._group, state["step"])

    def restore(self) -> None:
        """Undo the last step."""
        for state, before in zip(self._states, self._before, strict=True):
            state["mu_product"] = before


class Lion(RuleOptimizer):
    """The sign of a mix of momentum and gradient; weight decay is decoupled. Source: arXiv:2302.06675."""

    op = "lion_step"
    numbers = ("lr", "betas[0]", "betas[1]", "weight_decay")

    def __init__(self, params: Params, lr: float = 1e-4, betas: Betas = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        check_settings(self, lr=lr, weight_decay=weight_decay, betas=betas)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg",)


class LAMB(RuleOptimizer):
    """AdamW whose update of each layer is scaled to the layer's size, for large batches. Source: arXiv:1904.00962."""

    skippable = False  # norms are taken of updates that a skipped step would not have
    op = "lamb_update"
    numbers = ("betas[0]", "betas[1]", "eps", "weight_decay")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
    ) -> None:
        check_settings(self, lr=lr, eps=eps, weight_decay=weight_decay, betas=betas)
        self._sums = Sums()
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def states(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

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
        count = len(params)
        updates = [empty_like(x) for x in states[:count]]
        super().run(group, params, grads, (*states, *updates), numbers, counted=counted)
        norms = _SQUARES((params, updates), {}, (), self._sums)
        _SCALED((params, updates, *norms), {"lr": setting(group, "lr")}, (params,), self._sums)


def _squares(ops: Any, p: Numeric, update: Numeric) -> Any:
    return p * p, update * update


def _scaled(ops: Any, p: Any, update: Any, size: Any, change: Any, *, lr: Numeric) -> Any:
    """Subtract an update, scaled to the parameter's norm unless a norm is 0; `size` and `change` are squares of the norms."""
    ratio = ops.where(size > 0.0, ops.where(change > 0.0, ops.sqrt(size) / ops.sqrt(change), 1.0), 1.0)
    return (p - update * (ratio * lr),)


_SQUARES, _SCALED = ElementFormula(_squares), ElementFormula(_scaled, singles=2)
