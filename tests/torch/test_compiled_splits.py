"""Ops that graphs cannot contain are split off and run by PyTorch, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled import (
    ON_CPU,
    ON_DEVICE,
    compare,
    cubed,
    train,
)
from torch import nn
from torch.nn import functional as F

import polyhal
import polyhal.torch

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@ON_DEVICE
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_graph_breaks(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))

    def loss(called: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = called(x)
        value = F.mse_loss(out, y)
        print("loss", value.item())
        return value * 2

    train(model, torch.compile(loss, backend="polyhal"), [(torch.randn(3, 4), torch.randn(3, 2))] * 2, place)
    assert capsys.readouterr().out.count("loss") >= 4


def test_ops_without_a_function_are_split_off(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = torch.sin(x @ x.t()) + 3 * torch.eye(x.shape[0], device=x.device)
        q = cubed(y)
        return (q.tanh() * 2).sum(0), y

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(3, 5, requires_grad=True),)] * 2, place)
    assert list(polyhal.torch.report().on_cpu) == ["polyhal_tests.cubed.default"]


def test_dtypes_that_polyhal_lacks_are_split_off() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x * 2).abs() + 1

    polyhal.torch.reset_report()
    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(8),)], "cpu")


def test_writes_stay_behind_reads_in_a_split_graph(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inverse = cubed(y + x)
        x.add_(1)
        y.copy_(inverse)
        return x * 2 + inverse

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.eye(3), torch.eye(3))] * 2, place)


def test_sizes_in_a_split_graph(place: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        y = cubed(x @ x.t() / n + torch.eye(n, device=x.device))
        return (y.reshape(n * n) * n)[: n + 1]

    with pytest.warns(UserWarning, match="ran on the CPU"):
        compare(f, [(torch.randn(n, 4),) for n in (3, 5, 6)], place, dynamic=True)


@ON_CPU
def test_splitting_can_be_forbidden(place: str) -> None:
    compiled = torch.compile(lambda x: cubed(x) + 1, backend="polyhal", options={"split": False})
    with pytest.raises(NotImplementedError, match=r"cubed.*there is no function for it"):
        compiled(torch.eye(3, device=place))


def test_the_cpu_can_be_forbidden(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    compiled = torch.compile(lambda x: cubed(x) + 1, backend="polyhal")
    with pytest.raises(NotImplementedError, match="POLYHAL_FALLBACK is error"):
        compiled(torch.eye(3, device=place))


@pytest.mark.parametrize("mode", ["max-autotune", "fastest"])
def test_other_modes_are_refused(mode: str) -> None:
    with pytest.raises(Exception, match=r"polyhal has default and reduce-overhead"):
        torch.compile(lambda x: x + 1, backend="polyhal", mode=mode)(torch.ones(2))


def test_other_options_are_refused() -> None:
    with pytest.raises(Exception, match=r"options triton; polyhal has device and split"):
        torch.compile(lambda x: x + 1, backend="polyhal", options={"triton": True})(torch.ones(2))


@ON_CPU
def test_exceptions(place: str) -> None:
    compiled = torch.compile(lambda x, i: F.embedding(i, x) if x.ndim == 2 else x @ i, backend="polyhal")
    with pytest.raises(
        Exception, match=r"size mismatch|must match|shapes cannot be multiplied|incompatible|inconsistent"
    ):
        compiled(torch.ones(3, device=place), torch.ones(4, device=place))
    found = compiled(torch.ones(3, 2, device=place), torch.tensor([0, 2], device=place))
    assert found.cpu().tolist() == [[1, 1], [1, 1]]
