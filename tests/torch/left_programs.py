"""Programs with operations that cannot be recorded, on models with all kinds of state."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "polyhal"


class Program:
    """A model with all kinds of state. Two of the same seed are equal."""

    def __init__(self, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        layers = [nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 2)]
        self.model = nn.Sequential(*layers).to(DEVICE)
        make = optimizer or (lambda p: torch.optim.AdamW(p, lr=0.1))
        self.optimizer = make(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.log: list[Any] = []
        self.batches = iter([torch.randn(5, 3) for _ in range(20)])
        self.memory = torch.zeros(4, 3, device=DEVICE)
        self.copied: nn.Module = self.model

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).square().mean()

    def train(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def state(self) -> list[Any]:
        """Everything that a step may change, on the host."""
        module, optimizer = self.model, self.optimizer
        tensors = [*module.parameters(), *module.buffers(), *(p.grad for p in module.parameters()), self.memory]
        tensors += [x for s in optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor)]
        random_states = [torch.get_rng_state(), torch.polyhal.get_rng_state()]
        numbers = [g["lr"] for g in optimizer.param_groups] + self.schedule.get_last_lr()
        flags = [p.requires_grad for p in module.parameters()] + [self.schedule.last_epoch]
        return [host(x) for x in (*tensors, *random_states, *numbers, *flags, random.random(), *self.log)]


def host(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().cpu().numpy().tobytes()
    if isinstance(x, (list, tuple)):
        return [host(v) for v in x]
    assert type(x) in (int, float, bool, str, type(None)), type(x)
    return x


def _reads_at_the_end(p: Program, x: torch.Tensor) -> Any:
    loss = p.loss(x)
    p.train(loss)
    return loss.item()


def _branches_in_the_forward_pass(p: Program, x: torch.Tensor) -> Any:
    hidden = p.model[0](x)
    hidden = hidden * 2 if hidden.sum() > 0 else -hidden
    p.train(loss := p.model[1:](hidden).square().mean())
    return loss


def _checks_before_the_optimizer(p: Program, x: torch.Tensor) -> Any:
    loss = p.loss(x)
    p.optimizer.zero_grad()
    loss.backward()
    if torch.isfinite(loss).all():
        p.optimizer.step()
    return loss.detach()


def _selects_by_a_mask(p: Program, x: torch.Tensor) -> Any:
    p.train(p.loss(x[x[:, 0] > -9]))


def _leaves_for_numpy(p: Program, x: torch.Tensor) -> Any:
    p.train(loss := p.loss(x))
    return p.model(x).detach().cpu().numpy().tolist(), str(loss)


def _replaces_data(p: Program, x: torch.Tensor) -> Any:
    weight = p.model[0].weight
    weight.data = weight.data * 0.5
    p.log.append(weight.sum().item())
    p.train(p.loss(x))


def _freezes(p: Program, x: torch.Tensor) -> Any:
    p.model[0].weight.requires_grad_(False)
    loss = p.loss(x)
    p.log.append(loss.item())
    p.train(loss)


def _adds_attributes(p: Program, x: torch.Tensor) -> Any:
    if not hasattr(p.model[0], "calls"):
        p.model[0].calls = 0
        p.model[0].hidden = torch.zeros(3, device=DEVICE)
    p.model[0].calls += 1
    p.model[0].hidden = p.model[0].hidden + x.sum(0)
    p.log.append(p.loss(x).detach())
    p.train(p.loss(x + p.model[0].hidden))
    p.log.append(p.model[0].hidden.max().item())
    p.log.append(p.model[0].calls)


def _appends_before_and_after(p: Program, x: torch.Tensor) -> Any:
    p.log.append(x.sum())
    p.log.append(x.min().item())
    p.log.append(x.max())


def _takes_the_next_batch(p: Program, x: torch.Tensor) -> Any:
    x = next(p.batches).to(DEVICE) + F.dropout(x) * torch.randn(5, 1).to(DEVICE) * random.random()
    p.train(loss := p.loss(x))
    return loss.item(), np.random.rand()


def _schedules_before_the_read(p: Program, x: torch.Tensor) -> Any:
    p.train(loss := p.loss(x))
    p.schedule.step()
    rate = p.schedule.get_last_lr()[0]
    p.train(p.loss(2 * x) * rate)
    p.log.append(rate)
    value = loss.item()
    p.train(p.loss(x) * rate)
    p.schedule.step()
    return value, rate


def _branches_on_a_rate_after_the_schedule(p: Program, x: torch.Tensor) -> Any:
    p.train(loss := p.loss(x))
    p.schedule.step()
    if p.schedule.get_last_lr()[0] > 0.08:
        p.train(p.loss(x))
    return loss


def _sets_a_rate(p: Program, x: torch.Tensor) -> Any:
    for group in p.optimizer.param_groups:
        group["lr"] = group["lr"] * 0.75
    p.train(loss := p.loss(x))
    return loss


def _sets_a_rate_and_reads(p: Program, x: torch.Tensor) -> Any:
    for group in p.optimizer.param_groups:
        group["lr"] = group["lr"] * 0.75
    loss = p.loss(x)
    scale = p.optimizer.param_groups[0]["lr"] * 3
    p.log.append(scale)
    p.train(loss * scale)
    return loss.item() * scale


def _seeds(p: Program, x: torch.Tensor) -> Any:
    noisy = F.dropout(x)
    torch.manual_seed(5)
    p.train(p.loss(noisy))


def _recomputes(p: Program, x: torch.Tensor) -> Any:
    hidden = checkpoint(lambda x: F.dropout(p.model[0](x), 0.4), x, use_reentrant=False)
    p.log.append(hidden.max().item())
    p.train(p.model[1:](F.dropout(hidden)).square().mean())


def _reads_in_a_hook(p: Program, x: torch.Tensor) -> Any:
    hidden = p.model[0](x)
    hidden.register_hook(lambda g: g * 2 if g.sum().item() > 0 else g)
    p.train(p.model[1:](hidden).square().mean())


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * min(x.abs().max().item(), 1.5)


def _reads_in_a_gradient(p: Program, x: torch.Tensor) -> Any:
    hidden: Any = _Clipped.apply(p.model[0](x))
    p.train(p.model[1:](hidden).square().mean())


def _clips_with_a_check(p: Program, x: torch.Tensor) -> Any:
    loss = p.loss(x)
    p.optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(p.model.parameters(), 0.1, error_if_nonfinite=True)
    p.optimizer.step()
    return norm


def _writes_through_views(p: Program, x: torch.Tensor) -> Any:
    a, b = p.memory[:2], p.memory[2:]
    a.add_(x[:2])
    b.copy_(a * 2)
    made = x.clone()
    first, whole = made[0], made.reshape(-1)
    whole[1:4] = 7
    a.copy_(b)
    p.log += [made.sum().item(), first, whole, made.view(torch.int32)[1]]
    first += 1
    whole.mul_(2)
    b += made[:2]
    p.log += [made, p.memory.clone()]


def _exchanges_memory(p: Program, x: torch.Tensor) -> Any:
    a, b = p.memory[:2], p.memory[2:]
    b += x[:2]
    before = a.clone()
    a.copy_(b)
    b.copy_(before)
    return bool(a[0, 0] > b[0, 0]), a.detach(), before


def _works_on_the_host_too(p: Program, x: torch.Tensor) -> Any:
    counts = torch.zeros(3)
    counts += torch.rand(3)
    sent = counts.to(DEVICE)
    counts.mul_(3)
    p.log += [sent.max().item(), counts.clone(), counts.sum().item(), sent]


def _hands_out_an_address(p: Program, x: torch.Tensor) -> Any:
    y = x * 2
    p.log.append(y.data_ptr() % 2)
    return y


def _accumulates_gradients(p: Program, x: torch.Tensor) -> Any:
    loss = p.loss(x)
    loss.backward()
    p.log.append(loss.item())
    if len(p.log) % 2 == 0:
        p.optimizer.step()
        p.optimizer.zero_grad(set_to_none=False)


def _averages_a_copy(p: Program, x: torch.Tensor) -> Any:
    if not p.log:
        p.copied = copy.deepcopy(p.model)
    p.train(p.loss(x))
    with torch.no_grad():
        for a, b in zip(p.copied.parameters(), p.model.parameters(), strict=True):
            a.lerp_(b, 0.1)
        p.log.append(next(p.copied.parameters()).sum().item())
        for a, b in zip(p.copied.buffers(), p.model.buffers(), strict=True):
            a.copy_(b)
    p.log.append([x.clone() for x in p.copied.state_dict().values()])


def _differentiates_twice_in_half_precision(p: Program, x: torch.Tensor) -> Any:
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = p.loss(x)
    gradients = torch.autograd.grad(loss, list(p.model.parameters()), create_graph=True)
    norm = sum((g.square().sum() for g in gradients), torch.zeros((), device=DEVICE))
    p.train(loss + 0.1 * norm if norm.item() > 0 else loss)


def _returns_to_a_state_of_random_numbers(p: Program, x: torch.Tensor) -> Any:
    first = torch.rand(2, device=DEVICE)
    state = torch.polyhal.get_rng_state()
    drawn = torch.rand(3, device=DEVICE)
    total = drawn.sum().item()
    torch.polyhal.set_rng_state(state)
    p.log += [first, drawn, torch.rand(3, device=DEVICE)]
    return total


CHECKED = [_branches_in_the_forward_pass, _checks_before_the_optimizer, _clips_with_a_check, _exchanges_memory]
"""Programs that read answers, which each run of a recording checks."""
PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("_") and callable(value)]
PROGRAMS = [f for f in PROGRAMS if f not in CHECKED and getattr(f, "__annotations__", {}).get("p") == "Program"]
