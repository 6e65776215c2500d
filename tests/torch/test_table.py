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
    "integer scans": (
        lambda x: (x.cumsum(0), x.cumsum(0, dtype=torch.int32), x.cumprod(0, dtype=torch.int16)),
        (torch.arange(1, 5),),
    ),
    "products by groups": (
        lambda a, b, c, ends: (torch._grouped_mm(a, b, offs=ends), torch._grouped_mm(a.t(), c, offs=ends)),
        (_leaf(8, 4), _leaf(3, 4, 8), _leaf(8, 4).detach(), torch.tensor([3, 3, 8], dtype=torch.int32)),
    ),
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
    "order": (
        lambda x: (*x.sort(0), *x.topk(2, 1), *x.kthvalue(2, 0), x.median(), *x.median(1), x.quantile(0.3)),
        (_leaf(3, 4),),
    ),
    "order of a number": (lambda x: (*x.sort(), *x.topk(1), *x.cummax(0), x.argsort()), (torch.tensor(2.0),)),
    "search": (
        lambda x, s: (torch.searchsorted(s, x), torch.bucketize(x, s, right=True), torch.isin(x, s), x.histc(4)),
        (torch.randn(5), torch.tensor([-1.0, 0.0, 0.5])),
    ),
    "distinct": (
        lambda i: (*torch.unique(i, return_inverse=True, return_counts=True), i.flatten().bincount()),
        (INDEX,),
    ),
    "running extremes": (lambda x: (*x.cummax(1), *x.cummin(0), x.logcumsumexp(1), x.cumprod(0)), (_leaf(3, 4),)),
    "special functions": (
        lambda x: (torch.special.i1(x), torch.polygamma(1, x), torch.special.erfcx(x), torch.special.ndtri(x / 9)),
        (torch.tensor([0.5, 1.5, 2.5]).requires_grad_(),),
    ),
    "two special functions": (
        lambda a, x: (torch.special.gammainc(a, x), torch.special.xlog1py(a, x), torch.special.zeta(2.0, x + 1)),
        (torch.tensor([0.5, 1.5]), torch.tensor([1.0, 3.0])),
    ),
    "systems": (
        lambda x, b: (
            torch.linalg.solve(x @ x.mT + 1, b),
            torch.linalg.inv(x),
            torch.linalg.det(x),
            torch.logdet(x @ x.mT),
        ),
        (_leaf(3, 3), _leaf(3)),
    ),
    "factors": (
        lambda x: (
            torch.linalg.cholesky(x @ x.mT + torch.eye(3, device=x.device)),
            torch.linalg.svdvals(x),
            torch.linalg.eigvalsh(x + x.mT),
            torch.linalg.qr(x).R.abs(),
            torch.linalg.matrix_exp(x),
        ),
        (_leaf(3, 3),),
    ),
    "distances": (lambda x, y: (torch.cdist(x, y), F.pdist(x), torch.dist(x, y[:2])), (_leaf(2, 3), _leaf(4, 3))),
    "parts": (
        lambda x, s: (x.slice_scatter(s, 1, 0, 2), x.select_scatter(s[:, 0], 1, 3), x.diagonal_scatter(s[:, 0])),
        (_leaf(2, 4), torch.ones(2, 2)),
    ),
    "writes by index": (
        lambda x, i: (
            x.index_fill(0, i, 3.0),
            x.index_copy(0, i, x[:2]),
            x.put(i, x[0, :2]),
            x.take(i),
            x.masked_scatter(x > 0, x.flip(0)),
        ),
        (_leaf(3, 4), torch.tensor([2, 0])),
    ),
    "rearranged": (lambda x: (x.roll(1, 0), x.tril(), x.triu(1), x.rot90(), x.trace()), (_leaf(3, 4),)),
    "repeated": (lambda x, n: x.repeat_interleave(n, 0), (_leaf(3, 2), torch.tensor([2, 0, 1]))),
    "rarer activations": (
        lambda x: (
            F.elu(x),
            F.celu(x, 2.0),
            F.selu(x),
            F.glu(x),
            F.mish(x),
            F.hardswish(x),
            F.softshrink(x),
            F.logsigmoid(x),
        ),
        (_leaf(3, 4),),
    ),
    "segments": (
        lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 2], device=x.device)),
        (_leaf(4, 3),),
    ),
    "without a source": (lambda x: x.masked_scatter(x > 9, x[:0]), (torch.randn(3),)),
    "cat of vectors": (lambda x: torch.cat([x, x.new_zeros(0), x.long()]), (torch.randn(3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_device_agrees_with_the_cpu(torch_device: str, name: str) -> None:
    function, args = CASES[name]
    agree(function, *args, device=torch_device)
    assert not polyhal.torch.report().on_cpu, str(polyhal.torch.report())


def test_repeated_indices(torch_device: str) -> None:
    """The last of several values is kept, and accumulation adds all of them, as on PyTorch's CPU."""

    def put(x: torch.Tensor, i: torch.Tensor) -> Any:
        values = torch.arange(1.0, 4.0, device=x.device)
        return x.index_put((i,), values), x.index_put((i,), values, accumulate=True), x.index_add(0, i, values)

    agree(put, torch.zeros(4), torch.tensor([1, 1, 3]), device=torch_device)


def test_comparisons_in_place_keep_the_dtype(torch_device: str) -> None:
    x = torch.tensor([1.0, 2.0], device=torch_device)
    assert x.eq_(1).dtype is torch.float32
    assert x.logical_not_().tolist() == [0, 1]


def test_as_strided_scatter(torch_device: str) -> None:
    def scatter(x: torch.Tensor, source: torch.Tensor) -> Any:
        return torch.as_strided_scatter(x, source, (2,), (3,), 1), torch.as_strided_scatter(
            x.t(), source, (2,), (1,), 2
        )

    agree(scatter, torch.zeros(2, 3), torch.ones(2), device=torch_device)


def test_out_of_two_results(torch_device: str) -> None:
    values, places = torch.empty(0, device=torch_device), torch.empty(0, dtype=torch.int64, device=torch_device)
    torch.mode(torch.tensor([[1.0, 2, 2]], device=torch_device), 1, out=(values, places))
    assert (values.tolist(), places.tolist()) == ([2], [2])


DRAWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "uniform": (lambda x: x.uniform_(-1, 3), 1, 4 / 12**0.5),
    "exponential": (lambda x: x.exponential_(2), 0.5, 0.5),
    "geometric": (lambda x: x.geometric_(0.5), 2, 2**0.5),
    "integers": (lambda x: torch.randint(2, 8, x.shape, device=x.device).float(), 4.5, (35 / 12) ** 0.5),
    "choices": (lambda x: torch.multinomial(x[:3] + 1, 4000, replacement=True).float(), 1, (2 / 3) ** 0.5),
    "means": (lambda x: torch.normal(x + 2, 3.0), 2, 3),
    "permutation": (lambda x: torch.randperm(4000, device=x.device).float(), 1999.5, 4000 / 12**0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_mean_and_deviation(torch_device: str, name: str) -> None:
    draw, mean, deviation = DRAWS[name]
    torch.manual_seed(1)
    drawn = draw(torch.zeros(4000, device=torch_device)).cpu()
    # Five standard errors; of a deviation theirs is at most that of the exponential distribution, sqrt(2 / n) of it.
    assert drawn.mean().item() == pytest.approx(mean, abs=5 * deviation / 4000**0.5)
    assert drawn.std().item() == pytest.approx(deviation, rel=5 * (2 / 4000) ** 0.5)
    assert not polyhal.torch.report().on_cpu


def test_dropout_keeps_a_share_and_its_gradient_the_same(torch_device: str) -> None:
    x = torch.ones(4000, device=torch_device, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y)
    assert abs((y == 0).float().mean().item() - 0.25) < 0.05
    assert y.max().item() == pytest.approx(4 / 3)


def _resize(mode: str) -> Callable[[torch.Tensor], Any]:
    return lambda x: F.interpolate(x[None, None, :0], (2, 2), mode=mode)


REFUSED: dict[str, tuple[type[Exception], Callable[[torch.Tensor], Any]]] = {
    "mean of integers": (RuntimeError, lambda x: x.long().mean()),
    "an extreme of nothing": (IndexError, lambda x: x[:0].amax(0)),
    "an axis that is not there": (IndexError, lambda x: x.roll(1, 2)),
    "a source of another dtype": (RuntimeError, lambda x: x.scatter(0, torch.zeros_like(x).long(), x.double())),
    "steps of integers": (RuntimeError, lambda x: torch.lerp(x.long(), x.long(), 0.5)),
    "quotients of integers": (RuntimeError, lambda x: torch.addcdiv(x.long(), x.long(), x.long())),
    "a trace of three axes": (RuntimeError, lambda x: x[None].trace()),
    "the k-th of fewer": (RuntimeError, lambda x: x.kthvalue(9)),
    "an expanded target": (RuntimeError, lambda x: x[:1].expand(3, 3).add_(1)),
    "a result of another category": (RuntimeError, lambda x: x.long().add_(0.5)),
    "a result of another shape": (RuntimeError, lambda x: x[0].add_(x)),
    "an unknown length of nothing": (RuntimeError, lambda x: x[:0].view(0, -1)),
    "a singular matrix": (torch.linalg.LinAlgError, lambda x: torch.linalg.inv(torch.zeros_like(x))),
    "a negative deviation": (RuntimeError, lambda x: x.normal_(0, -1)),
    "a matrix of other columns": (RuntimeError, lambda x: x @ x[:2]),
    "the position of a maximum of nothing": (IndexError, lambda x: x[:0].argmax()),
    "a maximum along an axis of nothing": (IndexError, lambda x: x[:0, :0].max(0)),
    "the position of a minimum along an axis of nothing": (IndexError, lambda x: x[:0, :0].argmin(0)),
    "a median along an axis of nothing": (IndexError, lambda x: x[:0].median(0)),
    "a median of numbers along an axis of nothing": (IndexError, lambda x: x[:0, :0].nanmedian(-1)),
    "the k-th of nothing": (IndexError, lambda x: x[:0].kthvalue(1, 0)),
    "the most frequent of nothing": (IndexError, lambda x: x[:0, :0].mode(0)),
    "an image without channels": (RuntimeError, lambda x: F.interpolate(x[None, None][:, :0], size=(2, 2))),
    "an image of no size": (RuntimeError, lambda x: F.interpolate(x[None, None, :1, :1], scale_factor=0.5)),
    **{
        f"an image without pixels, {mode}": (RuntimeError, _resize(mode))
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    },
    "a smooth image without pixels": (
        RuntimeError,
        lambda x: F.interpolate(x[None, None, :0], (2, 2), mode="bilinear", antialias=True),
    ),
    "a sequence without elements": (RuntimeError, lambda x: F.interpolate(x[None, :, :0], 2, mode="linear")),
    "a volume without voxels": (RuntimeError, lambda x: F.interpolate(x[None, None, None, :0], (2, 2, 2))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_arguments_that_pytorch_refuses_raise_its_type(torch_device: str, what: str) -> None:
    kind, call = REFUSED[what]
    for device in ("cpu", torch_device):
        with pytest.raises(kind):
            call(torch.ones(3, 3, device=device))


def test_draws_come_from_the_generator_that_is_named(torch_device: str) -> None:
    def draws(seed: int) -> list[Any]:
        generator = torch.Generator(torch_device).manual_seed(seed)
        x = torch.ones(8, device=torch_device)
        return [
            x.exponential_(generator=generator).tolist(),
            torch.randperm(8, device=torch_device, generator=generator).tolist(),
            torch.multinomial(x, 4, generator=generator).tolist(),
            torch.randint(0, 99, (8,), device=torch_device, generator=generator).tolist(),
        ]

    assert draws(3) == draws(3)
    assert draws(3) != draws(4)
