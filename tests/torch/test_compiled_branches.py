"""Branches on values of tensors are guessed: graphs go on behind them, and a wrong guess has no effect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from polyhal.torch.compiler import branches

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

Function = Callable[..., Any]


def _graphs() -> int:
    """Return how many graphs PyTorch's compiler has made in this test."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _full(value: float) -> torch.Tensor:
    return torch.full((3,), value).to("polyhal")


def _clamped(x: torch.Tensor, scale: float = 2.0, *more: float, **named: float) -> torch.Tensor:
    y = x * scale
    if not torch.isfinite(y).all():
        y = y.clamp(-9, 9)
    y = y.sin()
    if y.sum() > 2 or more:
        return y * 2
    return y + len(named)


@pytest.mark.parametrize("scales", [(), (3.0, 4.0)])
def test_a_wrong_guess_runs_the_function_again(scales: tuple[float, ...]) -> None:
    compiled = torch.compile(_clamped, backend="polyhal")
    for value in (0.1, 0.2, float("inf"), 0.4, float("nan"), 0.1):
        x = torch.full((3,), value)
        # NumPy and PyTorch compute the same ops in the same order, on values of at most 18.
        torch.testing.assert_close(compiled(x.to("polyhal"), *scales).cpu(), _clamped(x, *scales), equal_nan=True)


def test_a_right_guess_keeps_one_graph_with_its_gradient() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.linear(x)
            return x if torch.isfinite(x).all() else x.clamp(-1, 1)

    model = nn.Sequential(Layer(), Layer(), Layer())
    on_device = copy.deepcopy(model).to("polyhal")
    compiled = torch.compile(on_device, backend="polyhal")
    for n, value in enumerate((1.0, 2.0, float("inf"))):
        x = torch.full((2, 3), value)
        for module, call, given in ((model, model, x), (on_device, compiled, x.to("polyhal"))):
            module.zero_grad()
            call(given).square().sum().backward()
        for expected, found in zip(model.parameters(), on_device.parameters(), strict=True):
            # Three layers of sums of 3 products, and sums of 2 rows: 30 roundings of 6e-8.
            torch.testing.assert_close(found.grad.cpu(), expected.grad, rtol=2e-6, atol=2e-6, equal_nan=True)
        assert n == 2 or _graphs() == 1


def test_arguments_that_the_graph_writes_are_written_once() -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous() if x.sum() > 0 else x
        x.add_(1)
        return x * 2 if x.sum() > 9 else x * 3

    compiled = torch.compile(add, backend="polyhal")
    for value in (1.0, 1.0, 4.0, -1.0):
        x, expected = _full(value), torch.full((3,), value)
        assert torch.equal(compiled(x).cpu(), add(expected))
        assert torch.equal(x.cpu(), expected)


def test_a_condition_that_is_written_after_its_branch() -> None:
    def chosen(x: torch.Tensor) -> torch.Tensor:
        is_negative = (x < 0).any()
        y = x * 3 if is_negative else x * 2
        is_negative.zero_()
        return y

    compiled = torch.compile(chosen, backend="polyhal")
    for value in (1.0, -1.0) * 4:
        x = torch.full((3,), value)
        assert torch.equal(compiled(x.to("polyhal")).cpu(), chosen(x))
    assert _graphs() <= 4  # the guess, the function up to its branch, and both branches


def test_random_numbers_are_drawn_once() -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        y = torch.rand_like(x)
        return y + torch.rand_like(x) if x.sum() > 0 else y - torch.rand_like(x)

    def expected(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) - torch.rand_like(x)

    compiled, plain = (torch.compile(f, backend="polyhal") for f in (noise, expected))
    compiled(_full(1.0))
    plain(_full(1.0))
    found = []
    for function in (plain, compiled, compiled):
        torch.manual_seed(3)
        found.append((function(_full(-1.0)).cpu(), torch.rand(2), torch.polyhal.get_rng_state()))  # type: ignore[attr-defined]
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))


def test_errors_are_those_of_the_branch_that_is_taken() -> None:
    def chosen(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        if (places < 3).all():
            return x[places]
        if (places > 8).all():
            raise ValueError("too far")
        return x

    compiled = torch.compile(chosen, backend="polyhal")
    x = torch.arange(3.0).to("polyhal")
    for place, expected in ((1, [1.0]), (7, [0.0, 1.0, 2.0]), (2, [2.0])):
        assert compiled(x, torch.tensor([place]).to("polyhal")).tolist() == expected
    with pytest.raises(ValueError, match="too far"):
        compiled(x, torch.tensor([9]).to("polyhal"))


def _halved(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    count = 0
    while x.sum() > 1:
        x, count = x / 2, count + 1
    return x, count


def _divided(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    def is_large() -> bool:
        if x.sum() > 1:  # noqa: SIM103  (a branch is tested)
            return True
        return False

    count = 0
    while is_large():
        x, count = x / 1.5, count + 1
    return x, count


@pytest.mark.parametrize("loop", [_halved, _divided])
def test_loops_whose_end_depends_on_values(loop: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_MOST", 4)
    compiled = torch.compile(loop, backend="polyhal")
    for value in (0.4, 2.0, 0.3):  # up to 5 divisions, each rounded
        (x, count), (expected, times) = compiled(_full(value)), loop(torch.full((3,), value))
        assert count == times
        torch.testing.assert_close(x.cpu(), expected)


def test_modes_and_closures_are_those_of_the_caller() -> None:
    def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def shifted(z: torch.Tensor) -> torch.Tensor:
            return z + step if y.sum() > 0 else z - step

        step = float(x.shape[0])
        with torch.enable_grad(), torch.autocast("polyhal", torch.bfloat16):
            return shifted(x @ x.t())

    compiled = torch.compile(outer, backend="polyhal")
    x = torch.eye(2, requires_grad=True, device="polyhal")
    with torch.no_grad():
        for value, expected in ((1.0, 3.0), (-1.0, -1.0), (1.0, 3.0)):
            found = compiled(x, _full(value))
            assert (found[0, 0].item(), found.requires_grad, found.dtype) == (expected, True, torch.bfloat16)
            assert not torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("polyhal")


def test_a_whole_graph_is_still_required() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="ata-dependent branching"):
        torch.compile(_clamped, backend="polyhal", fullgraph=True)(_full(1.0))
