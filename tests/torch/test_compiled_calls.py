"""Sizes, numbers and random numbers that change between calls of a compiled function."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from compiled import (
    ON_CPU,
    ON_DEVICE,
    compare,
    cross_entropy,
    relative_error,
    train,
)
from torch import nn
from torch.nn import functional as F

import polyhal.torch.compiler.graph as compiled_graphs
import polyhal.torch.compiler.program as compiled_programs

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@ON_CPU
def test_dynamic_batches(place: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in (5, 3, 7, 5)]
    with torch._dynamo.config.patch(error_on_recompile=False, recompile_limit=3):
        train(model, cross_entropy, batches, place)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4


@ON_DEVICE
def test_sizes_are_computed_with(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        n, m = x.shape
        y = x.reshape(n * m // 2, 2) * n
        return y[: n - 1], torch.arange(n, device=x.device) + m, n + m, torch.zeros(n, m + 1, device=x.device)

    compare(f, [(torch.randn(n, 4, requires_grad=True),) for n in (3, 5, 6)], place, dynamic=True)


def test_numbers_that_change(place: str) -> None:
    def f(x: torch.Tensor, scale: float, times: int) -> torch.Tensor:
        for _ in range(times):
            x = x * scale
        return x + scale

    x = torch.randn(3, 4, requires_grad=True)
    compare(f, [(x, s, n) for s, n in ((0.5, 1), (0.7, 1), (0.9, 2), (0.3, 2), (1.5, 1))], place)


@ON_DEVICE
@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_numbers_that_are_read_within_a_graph(place: str) -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        total = (x * 2).sum().item()
        count = n.item()
        torch._check(count >= 0)
        return (x.exp() * total + count) * total

    compare(f, [(torch.randn(3), torch.tensor(k)) for k in (2, 5)], place)


def test_dropout_differs_from_call_to_call_and_its_gradient_fits(place: str) -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.4) * 3, backend="polyhal")
    masks = []
    for _ in range(3):
        x = torch.ones(4000, device=place, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert x.grad is not None
        assert relative_error(x.grad, y.detach().cpu()) < 1e-6
        kept = y.detach().cpu() != 0
        assert abs(kept.float().mean().item() - 0.6) < 5 * (0.4 * 0.6 / 4000) ** 0.5
        assert relative_error(y.detach()[kept.to(place)], torch.full((int(kept.sum()),), 5.0)) < 1e-6
        masks.append(kept)
    assert not torch.equal(masks[0], masks[1])
    torch.manual_seed(3)
    first = compiled(torch.ones(100, device=place))
    torch.manual_seed(3)
    assert torch.equal(first, compiled(torch.ones(100, device=place)))


@ON_DEVICE
def test_random_tensors(place: str) -> None:
    @torch.compile(backend="polyhal")
    def f(x: torch.Tensor) -> Any:
        return torch.rand_like(x), torch.randn(x.shape, device=x.device), torch.randint(3, 9, x.shape, device=x.device)

    for _ in range(2):
        uniform, normal, integers = (y.cpu() for y in f(torch.ones(4000, device=place)))
        assert abs(uniform.mean() - 0.5) < 5 * (1 / 12 / 4000) ** 0.5
        assert abs(normal.std() - 1) < 5 * (1 / 2 / 4000) ** 0.5
        assert sorted(integers.unique().tolist()) == [3, 4, 5, 6, 7, 8]


def test_other_results_than_tensors(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        return None, x + 1, 3, x.shape[0], {"a": [x * 2]}

    compare(f, [(torch.randn(3),), (torch.randn(4),)], place)


def test_threads_that_call_a_graph_at_once_compile_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(compiled_graphs._GRAPHS)
    x = torch.arange(4.0, device="polyhal")
    with torch.no_grad():
        function = torch.compile(lambda x: x * 2 + 1, backend="polyhal")
        function(x)
    (graph,) = set(compiled_graphs._GRAPHS) - before
    graph.release()
    programs: list[Any] = []

    def counted(*args: Any) -> Any:
        programs.append(compiled_programs.Program(*args))
        return programs[-1]

    monkeypatch.setattr(compiled_graphs, "Program", counted)
    start, found = threading.Barrier(3), []

    def work() -> None:
        start.wait()
        found.append(graph([x])[0].tolist())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [[1, 3, 5, 7]] * 3
    assert len(programs) == 1
