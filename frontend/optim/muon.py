"""Muon, which makes the momentum of matrices orthogonal: equal shapes take their matrix products together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.creation import empty_like
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, dense_grad, setting, zero_state
from polyhal.optim.rule_optimizer import check_settings
from polyhal.tensor import Tensor

_STACKED = 1 << 22
"""Maximum number of elements of several matrices in one product: launches are short compared to the products of larger ones."""
_FUSED = OPS["fused_elementwise"].call
_SQUARE: tuple[GroupStep, ...] = (("square", (0,), ()),)
_NORMALIZED: tuple[GroupStep, ...] = (("sqrt", (1,), ()), ("maximum", (3, 2), ()), ("divide", (0, 4), ()))
_WITH_PRODUCT = OPS["fused_matmul"].call
_WEIGHTED_SUM: tuple[GroupStep, ...] = (("multiply", (1, 2), ()), ("multiply", (0, 3), ()), ("add", (4, 5), ()))
_SCALED_SUM: tuple[GroupStep, ...] = (("multiply", (1, 2), ()), ("add", (3, 0), ()))


class Muon(Optimizer):
    """Momentum made orthogonal by Newton and Schulz's iteration, in bfloat16: for matrices. Source: K. Jordan et al. (2024).

    Parameters with another number of axes belong to another optimizer. `adjust_lr_fn` scales the rate with the shape: as the
    authors ("original"), or to AdamW's size ("match_rms_adamw"; arXiv:2502.16982). Raises ValueError for other shapes.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_settings(self, lr=lr, weight_decay=weight_decay, momentum=momentum, eps=eps, ns_steps=ns_steps)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            expected = "None, 'original' or 'match_rms_adamw'"
            raise ValueError(message("Muon", f"adjust_lr_fn is {adjust_lr_fn!r}", expected=expected))
        settings = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, settings)

    def add_param_group(self, group: Group) -> None:
        super().add_param_group(group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                problem = f"a parameter has shape {p.shape}"
                raise ValueError(message("Muon", problem, expected="two axes", fix="give it to AdamW"))

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        for shape, ps in batches([p for p in params if math.prod(p.shape)], lambda p: p.shape):
            together = max(1, _STACKED // math.prod(shape))
            for i in range(0, len(ps), together):
                self._update_equal(group, ps[i : i + together])

    def _update_equal(self, group: Group, params: Sequence[Tensor]) -> None:
        """Update matrices of one shape."""
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = zero_state(p)
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        grads = [dense_grad(p) for p in params]
        directions = [empty_like(x) for x in buffers]
        inputs = (*buffers, *grads, *directions, 1, setting(group, "momentum"))
        flags = (len(params), bool(group["nesterov"]), False)
        dispatch.apply_into(OPS["muon_momentum"], inputs, flags, (*buffers, *directions))
        stacked = ops.stack(directions) if len(directions) > 1 else directions[0][None]
        orthogonal = _orthogonal(stacked, group["ns_coefficients"], group["ns_steps"], group["eps"])
        updates = [orthogonal[i] for i in range(len(params))]
        # Decay is relative to the rate without the factor of the shape.
        factor = _rate_factor(params[0].shape, group["adjust_lr_fn"])
        rate, decay = setting(group, "lr") * factor, setting(group, "weight_decay") * (1 / factor)
        numbers = (1, rate, 0.0, 0.0, decay)
        dispatch.apply_into(
            OPS["sgd_step"], (*params, *updates, *numbers), (len(params), False, False, False), tuple(params)
        )


def _rate_factor(shape: Sequence[int], function: str | None) -> float:
    """Return the factor of the rate of a matrix."""
    rows, columns = shape
    return 0.2 * math.sqrt(max(rows, columns)) if function == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))


def _orthogonal(x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Return matrices with the singular vectors of the matrices `x` and singular values near 1."""
    a, b, c = coefficients
    tall = x.shape[-2] > x.shape[-1]
    y = x.to(dtypes.bfloat16)
    y = ops.contiguous(y.mT) if tall else y
    (squares,) = _FUSED([y], _SQUARE, (1,), ("sum", (-2, -1), True))
    (y,) = _FUSED([y, squares, eps], _NORMALIZED, (5,), None)
    for _ in range(steps):
        gram = ops.matmul(y, y.mT)
        polynomial = _WITH_PRODUCT([gram, gram, gram], _WEIGHTED_SUM, (b, c))
        y = _WITH_PRODUCT([polynomial, y, y], _SCALED_SUM, (a,))
    return ops.contiguous(y.mT) if tall else y
