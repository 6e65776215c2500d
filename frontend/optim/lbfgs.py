"""L-BFGS: a quasi-Newton method for problems without noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from polyhal import functions as ops
from polyhal.autograd import enable_grad
from polyhal.hal import dispatch
from polyhal.hal.errors import message
from polyhal.inplace import overwrite
from polyhal.optim.line_search import strong_wolfe
from polyhal.optim.optimizer import Optimizer, Params
from polyhal.optim.rule_optimizer import check_settings
from polyhal.tensor import Tensor


@dataclass(slots=True)
class _Memory:
    """What one step leaves for the next."""

    steps: list[Tensor]
    """Differences between parameters, the oldest first."""
    changes: list[Tensor]
    """Differences between gradients."""
    scale: float = 1.0
    """Of the initial inverse Hessian."""


class LBFGS(Optimizer):
    """Limited-memory BFGS. `step(closure)` calls the closure, which computes the loss and its gradients, several times.

    One parameter group only. `line_search_fn` is None (steps of length `lr`) or "strong_wolfe". Stops after `max_iter`
    iterations, `max_eval` evaluations, a largest gradient of `tolerance_grad`, or a change below `tolerance_change`. It waits
    for the device in every iteration. Source: Nocedal and Wright, "Numerical Optimization" (2006), algorithm 7.5.
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
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, settings)
        if len(self.param_groups) != 1:
            problem = f"{len(self.param_groups)} parameter groups"
            raise ValueError(message("LBFGS", problem, expected="one"))
        self._memory = _Memory([], [])
        self._iterations = 0

    def step(self, closure: Callable[[], Any] | None = None, *, skip: Tensor | None = None) -> Any:
        """Minimize for at most `max_iter` iterations. Returns the loss at the start. Raises ValueError without a closure."""
        if closure is None or skip is not None:
            raise ValueError(message("LBFGS", "no closure is given", expected="step(closure), and no skip"))
        dispatch.thread.executor.require_execution("LBFGS", "an iteration looks at values")
        return _Minimization(self, closure).run()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        memory = {"steps": self._memory.steps, "changes": self._memory.changes, "scale": self._memory.scale}
        return {**state, "memory": memory, "iterations": self._iterations}

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict({k: state_dict[k] for k in ("state", "param_groups")})
        memory = state_dict.get("memory", {"steps": [], "changes": [], "scale": 1.0})
        self._memory = _Memory(list(memory["steps"]), list(memory["changes"]), memory["scale"])
        self._iterations = state_dict.get("iterations", 0)


class _Minimization:
    """One call of `step`."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self._optimizer = optimizer
        self._closure = closure
        self._group = optimizer.param_groups[0]
        self._memory = optimizer._memory
        self._evaluations = 0
        self._first_loss: Any = None

    def run(self) -> Any:
        group = self._group
        loss, gradient = self._evaluate()
        for iteration in range(group["max_iter"]):
            if float(ops.max(ops.abs(gradient)).item()) <= group["tolerance_grad"]:
                break
            direction = self._direction(gradient)
            slope = _dot(gradient, direction)
            if slope > -group["tolerance_change"]:
                break
            rate = float(group["lr"])
            if not self._optimizer._iterations:
                rate *= min(1.0, 1.0 / float(ops.sum(ops.abs(gradient)).item()))
            self._optimizer._iterations += 1
            before = self._parameters()
            previous_loss, previous = loss, gradient
            last = iteration == group["max_iter"] - 1
            if group["line_search_fn"] is None:
                length = rate
                self._place(before + direction * length)
                if not last:
                    loss, gradient = self._evaluate()
            else:
                probe = partial(self._probe, before, direction)
                length, loss, gradient = strong_wolfe(probe, rate, loss, gradient, slope, _dot, direction)
                self._place(before + direction * length)
            self._remember(direction * length, gradient - previous)
            size = float(ops.max(ops.abs(direction)).item()) * length
            small = size <= group["tolerance_change"] or abs(loss - previous_loss) < group["tolerance_change"]
            if last or small or self._evaluations >= group["max_eval"]:
                break
        return self._first_loss

    def _direction(self, gradient: Tensor) -> Tensor:
        """The step of a Newton method whose inverse Hessian is made of the remembered differences."""
        memory = self._memory
        q = -gradient
        pairs = [(s, y, 1.0 / _dot(y, s)) for s, y in zip(memory.steps, memory.changes, strict=True)]
        weights = []
        for s, y, inverse in reversed(pairs):
            weights.append(_dot(s, q) * inverse)
            q = q - y * weights[-1]
        r = q * memory.scale
        for (s, y, inverse), weight in zip(pairs, reversed(weights), strict=True):
            r = r + s * (weight - _dot(y, r) * inverse)
        return r

    def _remember(self, step: Tensor, change: Tensor) -> None:
        memory = self._memory
        curvature = _dot(change, step)
        if curvature <= 1e-10:
            return
        if len(memory.steps) == self._group["history_size"]:
            memory.steps.pop(0)
            memory.changes.pop(0)
        memory.steps.append(step)
        memory.changes.append(change)
        memory.scale = curvature / _dot(change, change)

    # --- parameters as one vector -----------------------------------------------------------------------------------

    def _evaluate(self) -> tuple[float, Tensor]:
        """Loss and gradient at the parameters."""
        self._evaluations += 1
        with enable_grad():
            loss = self._closure()
        if self._evaluations == 1:
            self._first_loss = loss
        grads = [
            ops.full((p.size,), 0.0, p.dtype, device=p.device) if p.grad is None else p.grad.detach().reshape(-1)
            for p in self._group["params"]
        ]
        return float(loss.item() if isinstance(loss, Tensor) else loss), ops.concat(grads)

    def _probe(self, before: Tensor, direction: Tensor, length: float) -> tuple[float, Tensor]:
        self._place(before + direction * length)
        return self._evaluate()

    def _parameters(self) -> Tensor:
        result: Tensor = ops.concat([p.detach().reshape(-1) for p in self._group["params"]])
        return result

    def _place(self, values: Tensor) -> None:
        start = 0
        for p in self._group["params"]:
            overwrite(p.detach(), values[start : start + p.size].reshape(p.shape))
            start += p.size


def _dot(a: Tensor, b: Tensor) -> float:
    return float(ops.sum(a * b).item())
