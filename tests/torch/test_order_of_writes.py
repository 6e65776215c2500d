"""Reads and writes of shared memory stay in order in PyTorch programs, and results share memory as PyTorch's do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from random_writes import function_of, outcome, program

import polyhal.torch

pytestmark = pytest.mark.usefixtures("fresh_compiler")

LENGTH = 12


def _slices(d: torch.Tensor, s: torch.Tensor) -> None:
    d[0:] = s[0:]


def _columns(d: torch.Tensor, s: torch.Tensor) -> None:
    d[:, 0:] = s[:, 0:]


def _everything(d: torch.Tensor, s: torch.Tensor) -> None:
    d[...] = s.view(3, 4)


def _transposed(d: torch.Tensor, s: torch.Tensor) -> None:
    d.t()[...] = s.t()


def _row(d: torch.Tensor, s: torch.Tensor) -> None:
    d[:] = s[1]


def _swapped(d: torch.Tensor, s: torch.Tensor) -> None:
    t = d.clone()
    d.copy_(s)
    s.copy_(t)


def _there_and_back(d: torch.Tensor, s: torch.Tensor) -> None:
    d.copy_(s)
    s.add_(1)
    s.copy_(d)
    d.mul_(2)


COPIES = (_slices, _columns, _everything, _transposed, _row, _swapped, _there_and_back)
CHANGES: tuple[Callable[[torch.Tensor], Any], ...] = (
    lambda s: s.add_(1),
    lambda s: s.zero_(),
    lambda s: s[1:].mul_(3),
)


def test_a_copy_comes_before_a_later_write_in_a_compiled_graph(place: str) -> None:
    cases = list(itertools.product(COPIES, CHANGES))

    def f(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        for (copy, change), (d, s) in zip(cases, pairs, strict=True):
            copy(d, s)
            change(s)
        return [s for _, s in pairs]

    def given(where: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
        numbers = torch.arange(24.0, device=where).reshape(2, 3, 4)
        return [(numbers[0] * 1, numbers[1] * (k + 1)) for k in range(len(cases))]

    compiled = torch.compile(f, backend="polyhal")
    for _ in range(2):
        theirs, ours = given("cpu"), given(place)
        expected, results = f(theirs), compiled(ours)
        for (copy, _), a, b, x, y in zip(cases, ours, theirs, results, expected, strict=True):
            assert [t.tolist() for t in (*a, x)] == [t.tolist() for t in (*b, y)], copy.__name__


@pytest.mark.parametrize("seed", range(5))
def test_random_writes_compiled(seed: int, place: str) -> None:
    f = function_of(program(seed, LENGTH))
    assert outcome(torch.compile(f, backend="polyhal"), place) == outcome(f, "cpu")


@pytest.mark.filterwarnings("ignore:polyhal_tests.cubed")
@pytest.mark.parametrize("seed", range(100, 103))
def test_random_writes_in_a_graph_that_is_split(seed: int, place: str) -> None:
    f = function_of(program(seed, LENGTH), splits=True)
    assert outcome(torch.compile(f, backend="polyhal"), place) == outcome(f, "cpu")


def test_random_writes_eager_and_recorded() -> None:
    for seed in range(60):
        f = function_of(program(seed, LENGTH))
        expected = outcome(f, "cpu")
        for run in (f, polyhal.torch.jit(f, strict=True), polyhal.torch.jit(f, warm_up=False, strict=True)):
            assert outcome(run, "polyhal") == expected, f"seed {seed}"


def test_an_argument_in_any_layout_is_written(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y[0].mul_(2)
        return x[1] + y[0, 0]

    def given(where: str) -> list[torch.Tensor]:
        base = torch.arange(30.0, device=where)
        return [base.reshape(5, 6).t(), base.reshape(5, 6)[::2, 1:4] * 1, base.reshape(6, 5)[1:5, ::2]]

    compiled = torch.compile(f, backend="polyhal")
    for i in range(3):
        theirs, ours = given("cpu"), given(place)
        assert compiled(ours[i], ours[i - 1]).tolist() == f(theirs[i], theirs[i - 1]).tolist()
        assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]


def test_results_that_are_views_of_one_tensor_share_memory_in_any_layout(place: str) -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2
        z = x + 1
        return [y[::2], y.diagonal(), y.t()[1], y, z[0], z[2]]

    compiled = torch.compile(f, backend="polyhal")
    for _ in range(2):
        results, expected = (g(torch.ones(3, 4, device=d)) for g, d in ((compiled, place), (f, "cpu")))
        for number, (a, b) in enumerate(zip(results, expected, strict=True)):
            a.add_(number)
            b.add_(number)
        assert [x.tolist() for x in results] == [x.tolist() for x in expected]
