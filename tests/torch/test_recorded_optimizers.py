"""Recorded steps of PyTorch's own optimizers, whose loops over parameters become a few launches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import polyhal
from polyhal.torch import jit
from tests.torch.comparison import launches_of

_ON_DEVICE = {"capturable": True, "betas": (0.9, 0.9)}
"""Step counts on the device: 1 - 0.999 ** 3, in float32, would be off by 2e-5."""
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "Adam": ("Adam", {}),
    "Adam, capturable": ("Adam", _ON_DEVICE),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1}),
    "Adadelta, capturable": ("Adadelta", {"capturable": True}),
    "RMSprop, centered": ("RMSprop", {"centered": True, "momentum": 0.9}),
    "Adamax": ("Adamax", {}),
    "NAdam": ("NAdam", {}),
    "NAdam, capturable": ("NAdam", _ON_DEVICE),
    "RAdam": ("RAdam", {}),
    "RAdam, capturable": ("RAdam", _ON_DEVICE),
    "Rprop": ("Rprop", {}),
    "Rprop, capturable": ("Rprop", {"capturable": True}),
    "ASGD, capturable": ("ASGD", {"capturable": True}),
}
SHAPES: list[tuple[int, ...]] = [(33,), (5, 7), (), (4,), (9, 2), (1,)]


def _optimizer(kind: str, device: str) -> Any:
    """Return an optimizer with two parameters whose step counts are behind the others'."""
    name, settings = KINDS[kind]
    random = torch.Generator().manual_seed(0)
    params = [torch.randn(s, generator=random).to(device).requires_grad_() for s in SHAPES]
    grads = [torch.randn(s, generator=random).to(device) for s in SHAPES]
    known = {k: v for k, v in settings.items() if k != "capturable" or device != "cpu"}
    optimizer = getattr(torch.optim, name)(params, lr=0.05, foreach=True, **known)
    for left_out in (params[0], params[-1]):
        for p, g in zip(params, grads, strict=True):
            p.grad = None if p is left_out else g.clone()
        optimizer.step()
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    return optimizer


def _values(optimizer: Any) -> list[torch.Tensor]:
    params = optimizer.param_groups[0]["params"]
    states = [optimizer.state[p][k] for p in params for k in sorted(optimizer.state[p])]
    return [torch.as_tensor(x).detach().cpu() for x in (*params, *states) if x is not None]


_QUICK = ("Adam", "NAdam, capturable")
"""A list of numbers, and a step that updates one of several intermediate results in place."""


@pytest.mark.parametrize("kind", [pytest.param(k, marks=() if k in _QUICK else pytest.mark.slow) for k in KINDS])
def test_recorded_steps_are_those_of_the_cpu_in_few_launches(torch_device: str, kind: str) -> None:
    """Two of six parameters are a step behind, so that their bias corrections differ from the others'."""
    expected, found = _optimizer(kind, "cpu"), _optimizer(kind, torch_device)
    step = jit(lambda: found.step())
    for _ in range(6):
        expected.step()
        step()
    torch.testing.assert_close(_values(found), _values(expected), rtol=2e-5, atol=1e-6)
    assert launches_of(step) <= 8


@pytest.mark.parametrize("shape", [(6, 16), (16, 6)])
def test_recorded_steps_of_muon_multiply_all_matrices_together(torch_device: str, shape: tuple[int, int]) -> None:
    """Five iterations of three products; PyTorch calls fifteen products for each of eight matrices."""
    random = torch.Generator().manual_seed(0)
    start, grads = (torch.randn(8, *shape, generator=random) for _ in range(2))
    params = [[torch.nn.Parameter(x.clone().to(device)) for x in start] for device in ("cpu", torch_device)]
    optimizers = [torch.optim.Muon(ps, lr=0.05) for ps in params]
    for p, q, g in zip(*params, grads, strict=True):
        p.grad, q.grad = g.clone(), g.to(torch_device)
    step = jit(lambda: optimizers[1].step())
    for _ in range(3):
        optimizers[0].step()
        step()
    for p, q, x in zip(*params, start, strict=True):
        # Five iterations in bfloat16, whose products round each sum to 8 bits, and each iteration amplifies up to 3.4 times.
        limit = 0.08 * (p.detach() - x).abs().max().item()
        torch.testing.assert_close(q.detach().cpu(), p.detach(), rtol=0, atol=limit)
    few = 28 if polyhal.get_default_device().name.startswith("opencl") else 60
    assert launches_of(step) <= few
