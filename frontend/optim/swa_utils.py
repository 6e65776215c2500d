"""Averages of a model's weights over the course of training: equal (SWA), or exponential (EMA)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

from polyhal import functions as ops
from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.nn.module import Module
from polyhal.optim.cyclic_schedules import Rates
from polyhal.optim.optimizer import Optimizer
from polyhal.optim.schedule import Scheduler
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor
from polyhal.tensor.inplace import overwrite

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From an averaged parameter, the model's, and how many were averaged to the new average."""


class AveragedModel(Module):
    """A copy of a model with the average of its parameters. Source: Izmailov et al., arXiv:1803.05407.

    `update_parameters(model)` counts one more state; `avg_fn(averaged, parameter, count)` computes another average than the
    equal one, such as `get_ema_avg_fn()`. `use_buffers` averages buffers too, otherwise they are copied. It may be part
    of a captured step.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Device | str | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError(message("AveragedModel", "avg_fn and multi_avg_fn are given", expected="one of them"))
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        first = next(iter(self.module.parameters()), None)
        self.register_buffer("n_averaged", ops.full((), 0, "int64", device=device if first is None else first.device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Add the model's parameters to the average."""
        averaged: list[Tensor] = list(self.module.parameters())
        current: list[Tensor] = list(model.parameters())
        if self.use_buffers:
            averaged += [b for _, b in self.module.named_buffers()]
            current += [b for _, b in model.named_buffers()]
        count = self.n_averaged
        with no_grad():
            pairs = [(a.detach(), c.detach().to(a.device)) for a, c in zip(averaged, current, strict=True)]
            if self.multi_avg_fn is not None:
                for a, c in pairs:
                    # The first state is the average, whatever the function does with zeros.
                    overwrite(a, ops.where(ops.equal(count.to(a.device), 0), c, a))
                for device in dict.fromkeys(a.device for a, _ in pairs):
                    there = [(a, c) for a, c in pairs if a.device is device]
                    self.multi_avg_fn([a for a, _ in there], [c for _, c in there], count.to(device))
            else:
                average = self.avg_fn or _equal
                for a, c in pairs:
                    n = count.to(a.device)
                    overwrite(a, ops.where(ops.equal(n, 0), c, average(a, c, n)).to(a.dtype))
            if not self.use_buffers:
                for (_, a), (_, c) in zip(self.module.named_buffers(), model.named_buffers(), strict=True):
                    overwrite(a, c.detach().to(a.device))
            overwrite(count, count + 1)


def _equal(averaged: Tensor, parameter: Tensor, count: Tensor) -> Tensor:
    if not averaged.dtype.is_floating_point:
        return parameter
    result: Tensor = averaged + (parameter - averaged) / (count + 1).to(averaged.dtype)
    return result


def get_swa_avg_fn() -> Average:
    """Return the equal average of all states."""
    return _equal


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return an exponential average, which keeps `decay` of itself. Raises ValueError outside 0 to 1."""
    if not 0 <= decay <= 1:
        raise ValueError(message("get_ema_avg_fn", f"decay is {decay}", expected="0 to 1"))

    def average(averaged: Tensor, parameter: Tensor, count: Tensor) -> Tensor:
        if not averaged.dtype.is_floating_point:
            return parameter
        return averaged * decay + parameter * (1 - decay)

    return average


def _for_lists(average: Average) -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]:
    def average_all(averaged: Sequence[Tensor], current: Sequence[Tensor], count: Tensor) -> None:
        for a, c in zip(averaged, current, strict=True):
            overwrite(a, average(a, c, count))

    return average_all


def get_swa_multi_avg_fn() -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]:
    """Return the equal average, for lists of tensors, which it overwrites."""
    return _for_lists(_equal)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]:
    """Return an exponential average, for lists of tensors, which it overwrites."""
    return _for_lists(get_ema_avg_fn(decay))


class SWALR(Scheduler):
    """From the rate at its start to `swa_lr` in `anneal_epochs` steps, and there it stays."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Rates,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            problem = f"anneal_strategy is {anneal_strategy!r}"
            raise ValueError(message("SWALR", problem, expected="'cos' or 'linear'"))
        groups = len(optimizer.param_groups)
        self.swa_lrs = list(swa_lr) if isinstance(swa_lr, Sequence) else [swa_lr] * groups
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        self.first_lrs = [float(group["lr"]) for group in optimizer.param_groups]
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        part = min(step / self.anneal_epochs, 1.0) if self.anneal_epochs else 1.0
        weight = part if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * part)) / 2
        return self.first_lrs[group] + (self.swa_lrs[group] - self.first_lrs[group]) * weight


def update_bn(loader: Iterable[Any], model: Module, device: Device | str | None = None) -> None:
    """Recompute the running statistics of batch norms: equal averages over the batches of `loader`.

    A batch is a tensor, or a sequence that begins with it.
    """
    norms: list[Any] = [m for m in model.modules() if hasattr(m, "running_mean") and m.running_mean is not None]
    if not norms:
        return
    momenta = [m.momentum for m in norms]
    training = model.training
    model.train()
    try:
        for m in norms:
            m.reset_running_stats()
        with no_grad():
            for number, batch in enumerate(loader):
                for m in norms:
                    m.momentum = 1.0 / (number + 1)
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in zip(norms, momenta, strict=True):
            m.momentum = momentum
        model.train(training)
