"""Entries of the table against the CPU, with gradients, and the dtypes of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import agree
from torch.nn import functional as F

import polyhal.torch


def _leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()


INDEX = torch.tensor([[0, 2, 2], [1, 1, 0]])
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "int and float": (lambda x: x * 1.5, (torch.arange(4),)),
    "without axes": (lambda x, s: x + s, (torch.arange(4, dtype=torch.int8), torch.tensor(300))),
    "a double without axes": (lambda x, s: x * s, (_leaf(4), torch.tensor(2.0, dtype=torch.float64))),
    "sum of bools": (lambda x: x.sum(0), (torch.tensor([True, True]),)),
    "sum of a number": (lambda x: x.sum(0), (torch.tensor(3),)),
    "all of bytes": (lambda x: x.all(), (torch.ones(3, dtype=torch.uint8),)),
    "division of ints": (lambda x: (x / 2, x // 2, x % 3), (torch.arange(-4, 4),)),
    "alpha": (lambda x, y: torch.sub(x, y, alpha=3), (_leaf(2, 3), _leaf(3))),
    "pow": (lambda x: (x**2, x**3, (x.abs() + 1) ** 0.5), (_leaf(5),)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (_leaf(5),)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (_leaf(4), _leaf(4))),
    "extremes": (lambda x: (*x.max(1), *x.min(0)), (_leaf(3, 4),)),
    "variance": (lambda x: (x.var(1), x.std(), x.mean(0)), (_leaf(3, 4),)),
    "scans": (lambda x: (x.cumsum(1), x.logsumexp(0)), (_leaf(3, 4),)),
    "softmax": (lambda x: (x.softmax(-1), F.log_softmax(x, 0)), (_leaf(3, 4),)),
    "activations": (lambda x: (F.gelu(x), F.silu(x), F.softplus(x, 2.0), F.leaky_relu(x), F.hardtanh(x)), (_leaf(9),)),
    "products": (
        lambda a, b: (a @ b, torch.addmm(_leaf(4).detach().to(a.device), a, b, beta=2)),
        (_leaf(2, 3), _leaf(3, 4)),
    ),
    "linear": (F.linear, (_leaf(2, 3, 4), _leaf(5, 4), _leaf(5))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (_leaf(3, 4), _leaf(4), _leaf(4))),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, ignore_index=1), (_leaf(3, 4), torch.tensor([0, 1, 3]))),
    "weighted losses": (
        lambda x, t, w: F.nll_loss(x, t, w, reduction="none"),
        (_leaf(3, 4), torch.tensor([0, 1, 3]), torch.rand(4)),
    ),
    "mean square": (F.mse_loss, (_leaf(3), _leaf(3))),
    "embedding": (lambda w, i: F.embedding(i, w, padding_idx=1), (_leaf(3, 4), INDEX)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (_leaf(1, 2, 4, 8),)),
    "attention with a mask that learns": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m),
        (_leaf(1, 2, 4, 8), _leaf(4, 4)),
    ),
    "grouped heads": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (_leaf(1, 4, 3, 8), _leaf(2, 3, 8).detach()[None]),
    ),
    "gather and scatter": (
        lambda x, i, s: (x.gather(1, i), x.scatter_add(1, i, s), x.scatter_reduce(1, i, s, "amax")),
        (_leaf(2, 3), INDEX, torch.ones(2, 3)),
    ),
    "masks": (lambda x: (x[x > 0], x.masked_fill(x > 0, 2.0), (x > 0).nonzero()), (_leaf(4, 3),)),
    "index": (lambda x, i: (x[i], x[:, i], x.index_select(1, i[0])), (_leaf(3, 4), INDEX)),
    "cat of vectors": (lambda x: torch.cat([x, x.new_zeros(0), x.long()]), (torch.randn(3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_device_agrees_with_the_cpu(torch_device: str, name: str) -> None:
    function, args = CASES[name]
    agree(function, *args, device=torch_device)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_repeated_indices(torch_device: str) -> None:
    """The last of several values stays, and accumulation adds all of them, as on PyTorch's CPU."""

    def put(x: torch.Tensor, i: torch.Tensor) -> Any:
        values = torch.arange(1.0, 4.0, device=x.device)
        return x.index_put((i,), values), x.index_put((i,), values, accumulate=True), x.index_add(0, i, values)

    agree(put, torch.zeros(4), torch.tensor([1, 1, 3]), device=torch_device)


def test_dropout_keeps_a_share_and_its_gradient_the_same(torch_device: str) -> None:
    x = torch.ones(4000, device=torch_device, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y)
    assert abs((y == 0).float().mean().item() - 0.25) < 0.05
    assert y.max().item() == pytest.approx(4 / 3)
