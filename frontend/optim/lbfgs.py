"""L-BFGS: a quasi-Newton method for problems without noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from polyhal import functions as ops
from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.nn.state import adopt
from polyhal.optim.line_search import Trial, strong_wolfe
from polyhal.optim.optimizer import Optimizer, Params, state_dtype
from polyhal.optim.rule_optimizer import check_settings
from polyhal.tape.modes import enable_grad
from polyhal.tensor import Tensor
from polyhal.tensor.inplace import overwrite


class LBFGS(Optimizer):
    """Limited-memory BFGS. `step(closure)` calls the closure, which computes the loss and its gradients, several times.

    One parameter group only. `line_search_fn` is None (steps of length `lr`) or "strong_wolfe". Stops after `max_iter`
    iterations, `max_eval` evaluations, a largest gradient of `tolerance_grad`, or a change below `tolerance_change`. It waits
    for the device in every iteration. The state of the first parameter has PyTorch's names and applies to all:
    `old_stps` and `old_dirs` are the differences between parameters and between gradients, `H_diag` scales the first
    inverse Hessian. Source: Nocedal and Wright, "Numerical Optimization" (2006), algorithm 7.5.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_settings(self, lr=lr, max_iter=max_iter, history_size=history_size)
        if line_search_fn not in (None, "strong_wolfe"):
            problem = f"line_search_fn is {line_search_fn!r}"
            raise ValueError(message("LBFGS", problem, expected="None or 'strong_wolfe'"))
        settings = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, settings)
        if len(self.param_groups) != 1:
            problem = f"{len(self.param_groups)} parameter groups"
            raise ValueError(message("LBFGS", problem, expected="one"))

    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Minimize for at most `max_iter` iterations. Returns the loss at the start. Raises ValueError without a closure."""
        if closure is None or skip is not None:
            raise ValueError(message("LBFGS", "no closure is given", expected="step(closure), and no skip"))
        dispatch.require_execution("LBFGS", "an iteration looks at values")
        group = self.param_groups[0]
        return _Minimization(group, self.state.setdefault(group["params"][0], {}), closure).run()

    def _loaded(self, name: str, value: Any, p: Tensor) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._loaded(name, v, p) for v in value]
        return adopt(value, state_dtype(p), p.device).clone() if hasattr(value, "shape") else value


class _Minimization:
    """One call of `step`. The parameters are one vector."""

    def __init__(self, group: dict[str, Any], state: dict[str, Any], closure: Callable[[], Any]) -> None:
        self._closure = closure
        self._group = group
        self._params: list[Tensor] = group["params"]
        self._home = self._params[0].device
        """Device of the vector; parameters may be on other devices."""
        self._state = state
        self._evaluations = 0
        self._first_loss: Any = None

    def run(self) -> Any:
        group, state = self._group, self._state
        for count in ("func_evals", "n_iter"):
            state.setdefault(count, 0)
        loss, gradient = self._evaluate()
        if _largest(gradient) > group["tolerance_grad"]:
            for iteration in range(group["max_iter"]):
                moved = self._iterate(loss, gradient, last=iteration == group["max_iter"] - 1)
                if moved is None:
                    break
                loss, gradient = moved
        state["func_evals"] += self._evaluations
        return self._first_loss

    def _iterate(self, loss: float, gradient: Tensor, *, last: bool) -> tuple[float, Tensor] | None:
        """Move the parameters. Returns loss and gradient there; None where the minimization ends."""
        group, state = self._group, self._state
        state["n_iter"] += 1
        direction = self._direction(gradient)
        length = float(group["lr"])
        if state["n_iter"] == 1:
            length *= min(1.0, 1.0 / float(ops.sum(ops.abs(gradient)).item()))
        state.update(d=direction, t=length, prev_flat_grad=gradient, prev_loss=loss)
        slope = float(_dot(gradient, direction).item())
        if slope > -group["tolerance_change"]:
            return None
        before, reach = self._parameters(), _largest(direction)
        new_loss, new_gradient = loss, gradient
        if group["line_search_fn"] is None:
            self._place(before + direction * length)
            if not last:
                new_loss, new_gradient = self._evaluate()
        else:
            start = Trial(0.0, loss, gradient, slope)
            most = group["max_eval"] - self._evaluations
            found = strong_wolfe(partial(self._probe, before, direction), length, start, reach, most)
            length = state["t"] = found.length
            new_loss, new_gradient = found.loss, found.gradient
            self._place(before + direction * length)
        change = group["tolerance_change"]
        ended = (
            last
            or self._evaluations >= group["max_eval"]
            or _largest(new_gradient) <= group["tolerance_grad"]
            or reach * length <= change
            or abs(new_loss - loss) < change
        )
        return None if ended else (new_loss, new_gradient)

    def _direction(self, gradient: Tensor) -> Tensor:
        """Return the step of a Newton method whose inverse Hessian is made of the remembered differences."""
        state = self._state
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -gradient
        self._remember(gradient - state["prev_flat_grad"], state["d"] * float(state["t"]))
        q = -gradient
        pairs = [*zip(state["old_stps"], state["old_dirs"], state["ro"], strict=True)]
        weights = []
        for s, y, inverse in reversed(pairs):
            weights.append(_dot(s, q) * inverse)
            q = q - y * weights[-1]
        r: Tensor = q * state["H_diag"]
        for (s, y, inverse), weight in zip(pairs, reversed(weights), strict=True):
            r = r + s * (weight - _dot(y, r) * inverse)
        return r

    def _remember(self, change: Tensor, step: Tensor) -> None:
        state, least = self._state, 1e-10
        curvature = _dot(change, step)
        if float(curvature.item()) <= least:
            return
        oldest = len(state["old_dirs"]) == self._group["history_size"]
        for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
            state[name] = [*state[name][oldest:], value]
        state["H_diag"] = curvature / _dot(change, change)

    # --- parameters as one vector -----------------------------------------------------------------------------------

    def _evaluate(self) -> tuple[float, Tensor]:
        """Loss and gradient at the parameters."""
        self._evaluations += 1
        with enable_grad():
            loss = self._closure()
        if self._evaluations == 1:
            self._first_loss = loss
        grads = [
            ops.full((p.size,), 0.0, p.dtype, device=self._home)
            if p.grad is None
            else p.grad.detach().reshape(-1).to(self._home)
            for p in self._params
        ]
        gradient: Tensor = ops.concat(grads).to(state_dtype(self._params[0]))
        return float(loss.item() if isinstance(loss, Tensor) else loss), gradient

    def _probe(self, before: Tensor, direction: Tensor, length: float) -> Trial:
        self._place(before + direction * length)
        loss, gradient = self._evaluate()
        return Trial(length, loss, gradient, float(_dot(gradient, direction).item()))

    def _parameters(self) -> Tensor:
        values: Tensor = ops.concat([p.detach().reshape(-1).to(self._home) for p in self._params]).to(
            state_dtype(self._params[0])
        )
        return values

    def _place(self, values: Tensor) -> None:
        start = 0
        for p in self._params:
            overwrite(p.detach(), values[start : start + p.size].reshape(p.shape).to(p.device, p.dtype))
            start += p.size


def _dot(a: Tensor, b: Tensor) -> Tensor:
    result: Tensor = ops.sum(a * b)
    return result


def _largest(x: Tensor) -> float:
    return float(ops.max(ops.abs(x)).item())
