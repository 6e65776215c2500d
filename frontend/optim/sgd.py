"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.creation import zeros
from polyhal.hal import dispatch
from polyhal.hal.errors import message
from polyhal.hal.ops import OPS
from polyhal.optim.optimizer import Group, Optimizer, Params, batches, dense_grad, state_dtype
from polyhal.tensor import Tensor


class SGD(Optimizer):
    """Gradient descent with momentum, dampening, Nesterov's variant and L2 weight decay, as PyTorch's.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(message("SGD", f"{name} is {value}", expected="0 or more"))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(
                message(
                    "SGD",
                    f"nesterov with momentum {momentum} and dampening {dampening}",
                    expected="momentum, and no dampening",
                )
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
            },
        )

    def update(self, group: Group, params: Sequence[Tensor]) -> None:
        momentum = float(group["momentum"])
        op = OPS["sgd_step"]
        if not momentum:
            numbers = (float(group["lr"]), 0.0, 0.0, float(group["weight_decay"]))
            for _, ps in batches(params, lambda p: None):
                dispatch.apply_into(op, (*ps, *map(dense_grad, ps), *numbers), (len(ps), False), tuple(ps))
            return
        for first, ps in batches(params, lambda p: "momentum_buffer" not in self.state.get(p, {})):
            for p in ps if first else ():
                self.state.setdefault(p, {})["momentum_buffer"] = zeros(p.shape, state_dtype(p), p.device)
            buffers = [self.state[p]["momentum_buffer"] for p in ps]
            # The first gradient enters the buffer whole.
            dampening = 0.0 if first else float(group["dampening"])
            numbers = (float(group["lr"]), momentum, dampening, float(group["weight_decay"]))
            inputs = (*ps, *map(dense_grad, ps), *buffers, *numbers)
            dispatch.apply_into(op, inputs, (len(ps), bool(group["nesterov"])), (*ps, *buffers))
