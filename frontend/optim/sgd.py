"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, setting, zero_state
from polyhal.optim.rule_optimizer import check_settings, gradient, refuse_differentiable
from polyhal.tensor import Tensor


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, dampening, Nesterov's variant and L2 weight decay, as in PyTorch.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013. Raises
    ValueError for `nesterov` without momentum or with dampening.

    >>> p = polyhal.tensor([1.0], requires_grad=True)
    >>> optimizer = polyhal.optim.SGD([p], lr=0.25)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p.tolist()
    [0.5]
    """

    skippable = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_settings(self, lr=lr, momentum=momentum, weight_decay=weight_decay)
        refuse_differentiable(self, differentiable)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                message(
                    "SGD",
                    f"nesterov with momentum {momentum} and dampening {dampening}",
                    expected="momentum, and no dampening",
                )
            )
        self._counts: dict[Tensor, int] = {}
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        op = OPS["sgd_step"]
        rate, decay = setting(group, "lr"), setting(group, "weight_decay")
        if not group["momentum"]:
            for _, ps in batches(params, lambda p: None):
                number = self.device_step(None, ps[0].device)
                grads = [gradient(p, maximize=group.get("maximize", False)) for p in ps]
                inputs = (*ps, *grads, 1 if number is None else number, rate, 0.0, 0.0, decay)
                dispatch.apply_into(op, inputs, (len(ps), False, False, number is not None), tuple(ps))
            return
        momentum = setting(group, "momentum")
        for _, ps in batches(params, self._count):
            for p in ps:
                if "momentum_buffer" not in self.state.get(p, {}):
                    self.state.setdefault(p, {})["momentum_buffer"] = zero_state(p)
                    self._counts[p] = 0
            buffers = [self.state[p]["momentum_buffer"] for p in ps]
            dampening = setting(group, "dampening")
            before = self._count(ps[0])
            try:
                dispatch.on_replay(partial(self._add_steps, ps, 1), partial(self._add_steps, ps, -1))
                step = dispatch.runtime_scalar(partial(self._count, ps[0]), "step", increment=1)
                number = self.device_step(step, ps[0].device)
                grads = [gradient(p, maximize=group.get("maximize", False)) for p in ps]
                inputs = (*ps, *grads, *buffers, step if number is None else number, rate, momentum, dampening, decay)
                flags = (True, bool(group["nesterov"]), number is not None)
                dispatch.apply_into(op, inputs, (len(ps), *flags), (*ps, *buffers))
            except BaseException:  # the device has updated nothing, so that the step can be repeated
                self._counts.update(dict.fromkeys(ps, before))
                raise

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._counts = {}

    def subtract_steps(self, steps: int) -> None:
        self._counts = {p: count - steps for p, count in self._counts.items()}

    def _count(self, p: Tensor) -> int:
        """How many gradients a parameter's momentum buffer contains; at least 1 for a loaded buffer."""
        return self._counts.get(p, 1 if "momentum_buffer" in self.state.get(p, {}) else 0)

    def _add_steps(self, params: Sequence[Tensor], steps: int) -> None:
        for p in params:
            self._counts[p] = self._count(p) + steps
