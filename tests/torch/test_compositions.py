"""Small programs of unusual compositions: eager, recorded and compiled they equal the CPU in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import polyhal.torch

pytestmark = pytest.mark.usefixtures("fresh_compiler")

Tensors = Sequence[torch.Tensor]


def _leaf_used_three_times(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    return ((torch.sin(x) + torch.cos(x) + x) ** 2 @ w + F.gelu(x) @ w.t().t() + x[1:2] @ w,)


def _shared_parameter(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = torch.tanh(x @ w) @ w + x
    return h, h.relu(), h[0] * 2


def _argument_returned(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = x * 2
    return h, h.sin(), h * 1, x @ w


def _shortcuts(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = x @ w
    parts = [
        F.pad(h, (0, 0)),
        h.roll(0, 0),
        h.repeat(1, 1),
        h.tile((1, 1)),
        h.repeat_interleave(1, 0),
        torch.rot90(h, 0),
        h.diff(n=0),
        torch.linalg.matrix_power(w, 1),
        F.pixel_shuffle(h[None, None], 1),
        h[:1].repeat(3, 1),
    ]
    total = sum(p.sum() for p in parts)
    for number, p in enumerate(parts):
        p.mul_(number)
    return h, total, *parts


def _written_view_used_twice(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = (x * 2).t()
    h[0] = 0
    y = torch.zeros_like(x)
    y[:, 1:] = w[0, 1:]
    return h + h.relu(), y * x


def _writes_between_reads(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = x * 0.1
    a = h * 3.0
    h.neg_()
    b = h + a
    h[1] = w[0]
    return a, b, h.clone().mul_(h)


def _rewritten_result(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    a = (x @ w).add_(1).mul_(x)
    a[0].zero_()
    b = a.t().contiguous().t()
    b.add_(a.detach())
    return a, b


def _accumulated(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    total = torch.zeros_like(x)
    for row in range(3):
        total[row] += (x[row] * w).sum(0)
        total += x
    return total, total[::2]


def _equal_logits(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    labels = torch.tensor([0, 1, 2], device=x.device)
    return F.cross_entropy(x * 0 + 1e7, labels) * w, F.cross_entropy(x @ w, labels), F.log_softmax(w * 0 + 1e9, -1) + x


def _branches_cut(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    h = x @ w
    with torch.no_grad():
        h2 = h * 2
        h2[0] = 5
    again = checkpoint(lambda t: torch.sin(t) * t, h, use_reentrant=False, preserve_rng_state=False)
    return h * h2, h.detach() + x, again


def _made_in_a_checkpoint(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    def made(t: torch.Tensor) -> torch.Tensor:
        here = {"dtype": t.dtype, "device": t.device}
        steps = torch.arange(3, **here) + torch.tensor([0.5, 1.0, 2.0], **here)
        return torch.sin(t @ (torch.eye(3, **here) + torch.zeros(3, 3, **here))) * steps

    return (checkpoint(made, x @ w, use_reentrant=False), made(x))


def _recurrent_in_a_checkpoint(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    def layers(t: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        start, options = t.new_zeros(1, 1, 3), (False, 1, 0.0, True, False, False)
        rnn = torch.rnn_tanh(t[:, None], start, [v, v.t()], *options)[0]
        lstm = torch.lstm(rnn, [start, start], [torch.cat([v, v.t()] * 2)] * 2, *options)[0]
        return torch.gru(lstm, start, [torch.cat([v, v.t(), -v])] * 2, *options)[0]

    return (checkpoint(layers, x, w, use_reentrant=False), checkpoint(layers, x * 2, w, use_reentrant=False))


def _equal_views_of_a_written_result(x: torch.Tensor, w: torch.Tensor) -> Tensors:
    y = x.sum() * 2  # one of its two remaining equal views does not have a gradient
    z = y.reshape((1,))
    z.copy_(w[0, :1])
    return z, y.detach()


PROGRAMS: tuple[Callable[..., Tensors], ...] = (
    _leaf_used_three_times, _shared_parameter, _argument_returned, _shortcuts, _written_view_used_twice,
    _writes_between_reads, _rewritten_result, _accumulated, _equal_logits, _branches_cut, _made_in_a_checkpoint,
    _recurrent_in_a_checkpoint, _equal_views_of_a_written_result,
)  # fmt: skip


def leaves(place: str, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.rand(3, 3, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2)]
    return [x.to(dtype).to(place).requires_grad_() for x in made]


def trained(program: Callable[..., Tensors], given: Tensors) -> list[torch.Tensor]:
    """Return results, and the gradients accumulated by two backward passes."""
    results: list[torch.Tensor] = []
    for _ in range(2):
        results = list(program(*given))
        loss = sum(((k + 1) * r.square().sum() for k, r in enumerate(results) if r.requires_grad), torch.zeros(()))
        loss.backward()  # type: ignore[union-attr]
    return [*(r.detach() for r in results), *(x.grad.clone() for x in given if x.grad is not None)]


def check(found: Tensors, program: Callable[..., Tensors]) -> None:
    """Compare with the CPU in float64. Products of values below 10 and a dozen float32 roundings leave 1e-5 of the largest."""
    expected = trained(program, leaves("cpu", torch.float64))
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        error = (a.cpu().double() - b).abs().max() / b.abs().max().clamp_min(1e-3)
        assert error < 1e-5, f"{program.__name__}, tensor {number}: {error}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_eager_and_recorded(program: Callable[..., Tensors]) -> None:
    check(trained(program, leaves("polyhal", torch.float32)), program)
    given = leaves("polyhal", torch.float32)
    step = polyhal.torch.jit(lambda: trained(program, given), strict=True)
    for _ in range(4):
        for x in given:
            x.grad = None
        found = step()
    check(found, program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled(program: Callable[..., Tensors]) -> None:
    compiled = torch.compile(program, backend="polyhal")
    check(trained(compiled, leaves("polyhal", torch.float32)), program)


def test_a_write_over_a_part_of_its_source_is_refused_as_on_the_cpu() -> None:
    def shift(x: torch.Tensor) -> None:
        x[1:].copy_(x[:-1])

    def add(x: torch.Tensor) -> None:
        x[1:].add_(x[:-1])

    def turn(x: torch.Tensor) -> None:
        x.mul_(x.t())

    def gap(x: torch.Tensor) -> None:  # PyTorch detects no overlap of layouts with gaps
        x[:, 1:3].add_(x[:, 2:])

    def itself(x: torch.Tensor) -> None:
        x.copy_(x)
        x.add_(x)
        x[1:].mul_(x[:1])

    for place in ("cpu", "polyhal"):
        x = torch.arange(16.0, device=place).reshape(4, 4)
        for write in (shift, add, turn, lambda x: x.copy_(x.t())):
            with pytest.raises(
                RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a"
            ):
                write(x)
        gap(x)
        itself(x)


def test_a_hook_on_a_view_that_was_written_runs_once_with_the_whole_gradient() -> None:
    for place in ("cpu", "polyhal"):
        seen: list[list[float]] = []
        x = torch.ones(3, device=place, requires_grad=True)
        h = (x * 2)[:]
        h.mul_(3)
        h.register_hook(lambda g, seen=seen: seen.append(g.tolist()))
        (h.sin() * 0 + h * h).sum().backward(retain_graph=True)
        assert seen == [[12.0] * 3]


@pytest.mark.parametrize(("inputs", "outputs", "batch"), [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_linear_layers_with_an_axis_of_length_0_have_gradients(
    torch_on_numpy: str, inputs: int, outputs: int, batch: int
) -> None:
    found = []
    for place in ("cpu", torch_on_numpy):
        shapes = (2, batch, inputs), (outputs, inputs), (outputs,)
        x, w, b = (torch.ones(s, device=place, requires_grad=True) for s in shapes)
        F.linear(x, w, b).sum().backward()
        found.append([None if t.grad is None else t.grad.tolist() for t in (x, w, b)])
    assert found[0] == found[1]
