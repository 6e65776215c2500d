"""Adafactor: all parameters of a step take a few launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal.creation import empty_like, tensor, zeros
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import finfo
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.formula import ElementFormula, Sums
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, count_step, setting, state_dtype, zero_state
from polyhal.optim.rule_optimizer import check_settings, gradient
from polyhal.tensor import Tensor

_LARGE = 1 << 18
"""Minimum number of elements of a tensor whose means fill a device, and are computed by a call of their own."""


class Adafactor(Optimizer):
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
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        self._inverses: dict[Any, list[Tensor]] = {}
        """Lists of inverse numbers on the device, by the numbers."""
        self._sums = Sums()
        super().__init__(params, settings)

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        for p in params:
            if not self.state.get(p):
                self.state[p] = {"step": 0, **self._initial(p)}
        for _, ps in batches([p for p in params if math.prod(p.shape)], lambda p: self.state[p]["step"]):
            count_step([self.state[p] for p in ps])
            self._update_together(group, ps)

    def _initial(self, p: Tensor) -> dict[str, Tensor]:
        if p.ndim < 2:
            return {"variance": zero_state(p)}
        rows, columns = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
        with dispatch.executing(dispatch.EAGER):
            return {
                name: zeros(shape, state_dtype(p), p.device)
                for name, shape in (("row_var", rows), ("col_var", columns))
            }

    def _update_together(self, group: Group, params: Sequence[Tensor]) -> None:
        """Update parameters of one dtype and step count."""
        state, wide = self.state[params[0]], state_dtype(params[0])
        least = finfo(wide).eps if group["eps"][0] is None else group["eps"][0]
        weight = dispatch.runtime_scalar(lambda: float(state["step"] ** group["beta2_decay"]), "weight")
        rho = dispatch.runtime_scalar(lambda: min(float(group["lr"]), 1 / math.sqrt(state["step"])), "rho")
        matrices, vectors = ([p for p in params if (p.ndim > 1) is several] for several in (True, False))
        updates: list[Tensor] = []
        squares: tuple[list[Tensor], list[Tensor]] = ([], [])
        for part, estimate in ((matrices, self._from_rows_and_columns), (vectors, self._from_squares)):
            if not part:
                continue
            new = [empty_like(p, dtype=wide) for p in part]
            grads = [gradient(p, maximize=group.get("maximize", False)) for p in part]
            for found, sums in zip(squares, estimate(part, grads, new, weight, least), strict=True):
                found += sums
            updates += new
        numbers = {
            "kept": 1 - setting(group, "lr") * setting(group, "weight_decay"),
            "smallest": group["eps"][1],
            "rho": rho,
            "d": group["d"],
        }
        ordered = [*matrices, *vectors]
        inverses = self._inverses_of([math.prod(p.shape) for p in ordered], ordered[0])
        _LIMITED((ordered, updates, *squares, inverses), numbers, (ordered,), self._sums)

    def _from_rows_and_columns(
        self, params: Sequence[Tensor], grads: Sequence[Tensor], updates: Sequence[Tensor], weight: Any, least: float
    ) -> list[Sequence[Tensor]]:
        """Write updates from the means of rows and columns; return sums of squares of parameters and updates."""
        rows, columns = ([self.state[p][name] for p in params] for name in self.factored_state)
        count = len(params)
        means = _means([*grads, *grads], [-1] * count + [-2] * count, square=True)
        mixed, number = ((*rows, *columns), means), {"weight": weight}
        parts = (params, grads, rows, columns)
        if all(p.ndim == 2 for p in params):
            totals = _SUMMED(mixed, number, mixed[:1], self._sums)[0][:count]
            inverses = self._inverses_of([p.shape[0] for p in params], params[0])
            return _FACTORED_BY_TOTALS((*parts, totals, inverses), {"least": least}, (updates,), self._sums)
        _MIXED(mixed, number, mixed[:1], self._sums)
        mean_of_rows = _means(rows, [-2] * count, square=False)
        return _FACTORED((*parts, mean_of_rows), {"least": least}, (updates,), self._sums)

    def _from_squares(
        self, params: Sequence[Tensor], grads: Sequence[Tensor], updates: Sequence[Tensor], weight: Any, least: float
    ) -> list[Sequence[Tensor]]:
        """Write updates from running squares; return sums of squares of parameters and updates."""
        variances = [self.state[p]["variance"] for p in params]
        return _UNFACTORED(
            (params, grads, variances), {"weight": weight, "least": least}, (variances, updates), self._sums
        )

    def _inverses_of(self, numbers: Sequence[int], like: Tensor) -> list[Tensor]:
        """Return the inverse of each number, on the device and in the state's dtype of a parameter."""
        key = (like.device, like.dtype, *numbers)
        if key not in self._inverses:
            with dispatch.executing(dispatch.EAGER):
                vector = tensor([1 / n for n in numbers], dtype=state_dtype(like), device=like.device)
                self._inverses[key] = [vector[i] for i in range(len(numbers))]
        return self._inverses[key]


def _means(xs: Sequence[Tensor], axes: Sequence[int], *, square: bool) -> list[Tensor]:
    """Return the mean along an axis of each tensor, or of its squares."""
    together = [i for i, x in enumerate(xs) if math.prod(x.shape) < _LARGE]
    calls = [*([together] if together else []), *([i] for i, x in enumerate(xs) if math.prod(x.shape) >= _LARGE)]
    found: dict[int, Tensor] = {}
    for members in calls:
        results = OPS["means_along"].call([xs[i] for i in members], tuple(axes[i] for i in members), square)
        found |= dict(zip(members, results, strict=True))
    return [found[i] for i in range(len(xs))]


def _mixed(ops: Any, state: Any, value: Any, *, weight: float) -> Any:
    return (state + (value - state) * weight,)


def _summed(ops: Any, state: Any, value: Any, *, weight: float) -> Any:
    (state,) = _mixed(ops, state, value, weight=weight)
    return state, state


def _factored(ops: Any, p: Any, g: Any, row: Any, column: Any, mean_of_rows: Any, *, least: Any) -> Any:
    estimate = row * column / ops.maximum(mean_of_rows, least)
    update = g / ops.sqrt(ops.maximum(estimate, least * least))
    return update, p * p, update * update


def _factored_by_totals(
    ops: Any, p: Any, g: Any, row: Any, column: Any, total: Any, inverse: Any, *, least: Any
) -> Any:
    """As `_factored`, with the sum of all rows of a matrix and their inverse number in place of their mean."""
    return _factored(ops, p, g, row, column, total * inverse, least=least)


def _unfactored(ops: Any, p: Any, g: Any, variance: Any, *, weight: Any, least: Any) -> Any:
    (variance,) = _mixed(ops, variance, g * g, weight=weight)
    update = g / ops.sqrt(ops.maximum(variance, least * least))
    return variance, update, p * p, update * update


def _limited(
    ops: Any, p: Any, update: Any, size: Any, change: Any, inverse: Any, *, kept: Any, smallest: Any, rho: Any, d: Any
) -> Any:
    """Subtract an update in the size of the parameter, limited to `d` times that; `size` and `change` are sums of squares."""
    rate = ops.maximum(ops.sqrt(size * inverse), smallest) * (rho * d)
    return (p * kept - update * (rate / ops.maximum(ops.sqrt(change * inverse), d)),)


_MIXED, _FACTORED, _UNFACTORED = ElementFormula(_mixed), ElementFormula(_factored), ElementFormula(_unfactored)
_SUMMED, _FACTORED_BY_TOTALS = ElementFormula(_summed), ElementFormula(_factored_by_totals, singles=2)
_LIMITED = ElementFormula(_limited, singles=3)
