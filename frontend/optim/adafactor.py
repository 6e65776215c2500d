"""Adafactor, which looks at rows and columns of a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from polyhal import functions as ops
from polyhal.creation import zeros
from polyhal.hal import dispatch
from polyhal.hal.dtypes import finfo
from polyhal.hal.errors import message
from polyhal.optim.optimizer import Group, Optimizer, Params, count_step, setting, state_dtype, zero_state
from polyhal.optim.rule_optimizer import check_settings, gradient
from polyhal.tensor import Tensor
from polyhal.tensor.inplace import overwrite


class _PerParameter(Optimizer):
    """Base of optimizers that update one parameter after the other."""

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        for p in params:
            state = self.state.get(p)
            if not state:
                state = self.state[p] = {"step": 0, **self.initial(p)}
            count_step([state])
            wide = state_dtype(p)
            grad = gradient(p, maximize=group.get("maximize", False)).to(wide)
            overwrite(p, self.updated(group, p.detach().to(wide), grad, state))

    def initial(self, p: Tensor) -> dict[str, Tensor]:
        """Return the states of a parameter before its first step."""
        raise NotImplementedError

    def updated(self, group: Group, p: Tensor, grad: Tensor, state: dict[str, Any]) -> Tensor:
        """Return the new parameter; overwrites the states."""
        raise NotImplementedError


def _number(compute: Callable[[], float], name: str) -> Any:
    return dispatch.runtime_scalar(compute, name)


def _rms(x: Tensor) -> Tensor:
    """Return the root of the mean square of all elements."""
    result: Tensor = ops.sqrt(ops.mean(x * x))
    return result


class Adafactor(_PerParameter):
    """Adam's scale from the means of rows and columns, so that its memory is their number. Source: arXiv:1804.04235.

    `eps` is (the minimum of squares, the minimum relative size of a parameter); `d` limits the size of an update.
    Raises ValueError for a positive `beta2_decay`, and `d` below 1.
    """

    factored_state = ("row_var", "col_var")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_settings(self, lr=lr, weight_decay=weight_decay, epsilon1=eps[0] or 0.0, epsilon2=eps[1])
        if beta2_decay > 0 or d < 1:
            problem = f"beta2_decay is {beta2_decay} and d {d}"
            raise ValueError(message("Adafactor", problem, expected="beta2_decay <= 0 and d >= 1"))
        settings = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, settings)

    def initial(self, p: Tensor) -> dict[str, Tensor]:
        if p.ndim < 2:
            return {"variance": zero_state(p)}
        rows, columns = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
        with dispatch.executing(dispatch.EAGER):
            return {
                name: zeros(shape, state_dtype(p), p.device)
                for name, shape in (("row_var", rows), ("col_var", columns))
            }

    def updated(self, group: Group, p: Tensor, grad: Tensor, state: dict[str, Any]) -> Tensor:
        least, smallest = group["eps"]
        least = finfo(grad.dtype).eps if least is None else least
        weight = _number(lambda: float(state["step"] ** group["beta2_decay"]), "weight")
        rho = _number(lambda: min(float(group["lr"]), 1 / math.sqrt(state["step"])), "rho")
        size = ops.maximum(_rms(p), smallest) * rho
        squares = grad * grad
        if grad.ndim < 2:
            estimate = self._mixed(state, "variance", squares, weight)
        else:
            rows = self._mixed(state, "row_var", ops.mean(squares, -1, True), weight)
            columns = self._mixed(state, "col_var", ops.mean(squares, -2, True), weight)
            estimate = ops.matmul(rows, columns) / ops.maximum(ops.mean(rows, -2, True), least)
        update = grad * ops.rsqrt(ops.maximum(estimate, least * least))
        limited = size / ops.maximum(_rms(update) / group["d"], 1.0)
        kept = 1 - setting(group, "lr") * setting(group, "weight_decay")
        result: Tensor = p * kept - update * limited
        return result

    def _mixed(self, state: dict[str, Any], name: str, value: Tensor, weight: Any) -> Tensor:
        mixed: Tensor = state[name] + (value - state[name]) * weight
        overwrite(state[name], mixed)
        return mixed
