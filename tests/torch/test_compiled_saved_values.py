"""Values that compiled forward graphs save for backward graphs: in one tensor, which hooks may move or compute again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from compiled import cubed, moved, relative_error
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("fresh_compiler")


class _Chain(nn.Module):
    """A chain whose gradients read values of several shapes, dtypes and layouts."""

    def __init__(self, split: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(6, 3)
        self.norm = nn.LayerNorm(7)
        self.split = split

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x).sin()).exp()
        hidden = cubed(hidden.tanh()) if self.split else hidden.tanh() * (hidden > 1)
        rows = hidden.t().contiguous().softmax(0)[:6]
        rows = rows.gather(1, rows.argsort(1))  # saves int64
        return self.last(rows.t().sigmoid())


@pytest.mark.filterwarnings("ignore:.*ran on the CPU", "ignore:1 torch.compile")
@pytest.mark.parametrize("split", [False, True])
def test_gradients_are_equal_under_hooks_of_saved_tensors(place: str, split: bool) -> None:
    torch.manual_seed(0)
    model, x = _Chain(split), torch.randn(5, 6)
    device_model, there = copy.deepcopy(model).to(place), moved(x, place)
    compiled = torch.compile(device_model, backend="polyhal")
    counts: list[int] = []

    def counting() -> AbstractContextManager[Any]:
        counts.clear()
        return torch.autograd.graph.saved_tensors_hooks(lambda t: counts.append(t.numel()) or t, lambda t: t)

    def strided() -> AbstractContextManager[Any]:
        return torch.autograd.graph.saved_tensors_hooks(lambda t: torch.stack([t, t], -1), lambda t: t[..., 1])

    def moved_by_three() -> AbstractContextManager[Any]:
        return torch.autograd.graph.saved_tensors_hooks(lambda t: torch.cat([t[:1], t[:1], t[:1], t]), lambda t: t[3:])

    programs: list[tuple[Callable[[], AbstractContextManager[Any]], Callable[..., Any]]] = [
        (nullcontext, compiled),
        (torch.autograd.graph.save_on_cpu, compiled),
        (nullcontext, lambda x: checkpoint(compiled, x, use_reentrant=False)),
        (counting, compiled),
        (strided, compiled),
        (moved_by_three, compiled),
    ]
    for hooks, function in programs:
        for m in (model, device_model):
            m.zero_grad()
        expected = model(x)
        expected.square().sum().backward()
        with hooks():
            found = function(there)
        found.square().sum().backward()
        # Sums of at most 35 products in float32, one after another in a chain of eight ops.
        assert relative_error(found, expected) < 1e-5
        for a, b in zip(device_model.parameters(), model.parameters(), strict=True):
            assert relative_error(a.grad, b.grad) < 1e-5
    assert len(counts) <= 1 + 1 + len(list(model.parameters()))  # the carrier, `x` and parameters


def test_values_of_two_graphs_are_kept_apart(place: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.exp()).tanh().cos()

    compiled = torch.compile(f, backend="polyhal")
    xs = [torch.randn(4, 5, requires_grad=True) for _ in range(3)]
    there = [moved(x, place) for x in xs]
    ys = [compiled(x) for x in there]
    with torch.no_grad():
        compiled(there[0])
    del ys[1]  # its values may be overwritten
    failing = compiled(there[1])
    failing.register_hook(lambda g: {}["missing"])
    with pytest.raises(KeyError):
        failing.sum().backward()
    for x, far, y in ((xs[0], there[0], ys[0]), (xs[2], there[2], ys[1])):
        f(x).sum().backward()
        y.sum().backward()
        assert relative_error(far.grad, x.grad) < 1e-5
