"""Compiled models and optimizer steps equal eager ones on the CPU, for tensors of the device and of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import (
    ON_CPU,
    ON_DEVICE,
    check,
    compare,
    cross_entropy,
    relative_error,
    train,
)
from test_training import GPT
from torch import nn
from torch.nn import functional as F

import polyhal
import polyhal.torch
from polyhal.hal.device import Device

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


def test_mlp(place: str) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    train(model, cross_entropy, [(torch.randn(5, 6), torch.randint(4, (5,))) for _ in range(3)], place)


@ON_CPU
def test_cnn_with_batch_norm(place: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 4),
    )
    train(model, cross_entropy, [(torch.randn(5, 3, 8, 8), torch.randint(4, (5,))) for _ in range(3)], place)


@ON_CPU
def test_attention_of_grouped_heads(place: str) -> None:
    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    q, k, v = (torch.randn(2, heads, 5, 4, requires_grad=True) for heads in (6, 2, 2))
    compare(f, [(q, k, v)], place)
    assert not polyhal.torch.report().on_cpu


class Recurrent(nn.Module):
    """An LSTM as a loop over its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(5, 7), nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.head(state[0])


@ON_CPU
def test_recurrent(place: str) -> None:
    train(Recurrent(), cross_entropy, [(torch.randn(4, 3, 5), torch.randint(3, (4,))) for _ in range(2)], place)


@ON_DEVICE
def test_gpt(place: str) -> None:
    batches = [(torch.randint(17, (2, 8)), torch.randint(17, (16,))) for _ in range(2)]
    train(GPT(), cross_entropy, batches, place)


def test_no_grad_and_eval(place: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 2)).eval()
    x = torch.randn(6, 4)
    expected = model(x)
    compiled = torch.compile(model.to(place), backend="polyhal")
    with torch.no_grad():
        check(compiled(x.to(place)), expected.detach(), place)
    with torch.inference_mode():
        assert relative_error(compiled(x.to(place)), expected) < 1e-5


@ON_CPU
def test_two_models_and_a_model_compiled_twice(place: str) -> None:
    first, second = nn.Linear(4, 4).to(place), nn.Linear(4, 4).to(place)
    x = torch.randn(3, 4, device=place)
    compiled = [torch.compile(m, backend="polyhal") for m in (first, second, first)]
    for _ in range(2):
        found = [m(x) for m in compiled]
        for a, m in zip(found, (first, second, first), strict=True):
            assert relative_error(a, m(x).cpu()) < 1e-6


@ON_DEVICE
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"capturable": True}])
def test_optimizers(place: str, options: dict[str, Any]) -> None:
    runs = []
    for where in ("cpu", place):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(where)
        chosen = options if where == place else {}
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4, **chosen)
        step = torch.compile(optimizer.step, backend="polyhal") if where == place else optimizer.step
        for k in range(3):
            model(torch.full((5, 6), 0.1 * k + 1).to(where)).square().sum().backward()
            step()
            optimizer.zero_grad()
        runs.append([p.detach() for p in model.parameters()])
    assert not polyhal.torch.report().on_cpu
    check(runs[1], runs[0], place)


@ON_CPU
@pytest.mark.filterwarnings("ignore:remat_using_tags_for_fwd_loss_bwd_graph")
def test_checkpoints(place: str) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(checkpoint(lambda y: self.first(y).tanh().exp(), x, use_reentrant=False))

    train(Checkpointed(), cross_entropy, [(torch.randn(5, 4), torch.randint(3, (5,)))] * 2, place)


@pytest.mark.parametrize("place", ["cpu", "polyhal"])
def test_the_gradient_of_dropout_in_a_checkpoint_has_the_mask_of_its_forward_pass(place: str) -> None:
    from torch.utils.checkpoint import checkpoint

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: F.dropout(y.exp(), 0.5), x, use_reentrant=False)

    x = torch.zeros(64, device=place, requires_grad=True)
    result = torch.compile(function, backend="polyhal")(x)
    result.sum().backward()
    assert x.grad is not None
    assert sorted(set(result.tolist())) == [0.0, 2.0]
    assert torch.equal(x.grad.cpu(), result.detach().cpu())


@ON_CPU
def test_on_opencl(place: str) -> None:
    polyhal.set_default_device(Device("opencl"))
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.0), nn.Linear(8, 4))
    train(model, cross_entropy, [(torch.randn(n, 6), torch.randint(4, (n,))) for n in (5, 5, 3)], place)
