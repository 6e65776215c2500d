"""Values that a program reads on the host in the middle of its graph: SciPy's assignments, and numbers of constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import polyhal.torch
from polyhal.torch.compiler import assignments

optimize = pytest.importorskip("scipy.optimize")
pytestmark = pytest.mark.usefixtures("fresh_compiler")
assignments.install()

Function = Callable[[torch.Tensor], object]


def _graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def test_a_loss_of_matched_points_is_one_graph() -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        costs = torch.cdist(x.detach(), y).cpu()
        rows, columns = (torch.as_tensor(i) for i in optimize.linear_sum_assignment(costs, maximize=True))
        count = torch.as_tensor([len(y)], dtype=torch.float32, device=x.device).clamp(min=1).item()
        return (x[rows] - y[columns]).square().sum() / count, rows

    compiled = torch.compile(loss, backend="polyhal")
    for _ in range(3):
        x, y = torch.randn(5, 2, requires_grad=True), torch.randn(3, 2)
        on_device = x.detach().to("polyhal").requires_grad_()
        (expected, rows), (found, chosen) = loss(x, y), compiled(on_device, y.to("polyhal"))
        expected.backward()
        found.backward()
        assert torch.equal(chosen, rows)
        assert chosen.device.type == "cpu"
        # A sum of 6 squares: 8 roundings of 6e-8.
        torch.testing.assert_close(found.cpu(), expected.detach(), rtol=1e-6, atol=0)
        torch.testing.assert_close(on_device.grad.cpu(), x.grad, rtol=1e-6, atol=1e-7)
    assert _graphs() == 1
    assert not polyhal.torch.report().on_cpu


@pytest.mark.parametrize(
    ("costs", "kind", "text"),
    [
        (lambda x: (x * np.nan).cpu(), ValueError, "invalid numeric entries"),
        (lambda x: x[0].cpu(), ValueError, "2-D array"),
        (lambda x: x, TypeError, "device type"),
    ],
)
def test_errors_are_those_of_scipy(costs: Function, kind: type[Exception], text: str) -> None:
    compiled = torch.compile(lambda x: optimize.linear_sum_assignment(costs(x)), backend="polyhal")
    with pytest.raises(kind, match=text):
        compiled(torch.eye(2).to("polyhal"))


def test_numbers_that_depend_on_more_than_constants_are_read_in_each_call() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(1, device=x.device)
        total.add_(x.sum())
        return x * total.item()

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(1, device=x.device).item()

    calls = iter(range(1, 9))
    library = torch.library.Library("polyhal_counted", "DEF")  # type: ignore[no-untyped-call]
    library.define("next(Device device) -> Tensor")
    library.impl("next", lambda device: torch.tensor([next(calls)], device=device), "CompositeExplicitAutograd")
    torch.library.register_fake("polyhal_counted::next", lambda device: torch.empty(1, device=device), lib=library)

    def counted(x: torch.Tensor) -> torch.Tensor:
        return x * torch.ops.polyhal_counted.next(x.device).item()

    x = torch.ones(2).to("polyhal")
    added, random = (torch.compile(f, backend="polyhal") for f in (written, drawn))
    assert [added(y).tolist() for y in (x, x * 2)] == [[2, 2], [8, 8]]
    assert random(x)[0].item() != random(x)[0].item()
    numbered = torch.compile(counted, backend="polyhal")
    assert [numbered(x).tolist() for _ in range(2)] == [[1, 1], [2, 2]]


def test_numbers_of_constants_are_computed_in_the_modes_of_the_caller() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        near = torch.full((1, 1), 1.001, device=x.device)  # 1 in bfloat16
        return x * (near @ near).item()

    with torch.autocast("polyhal", torch.bfloat16):
        assert torch.compile(scaled, backend="polyhal")(torch.ones(2).to("polyhal")).tolist() == [1, 1]
