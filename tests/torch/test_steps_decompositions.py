"""Factorizations in recorded steps and compiled functions: results, gradients, and the errors of singular matrices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import linalg

import polyhal.torch

pytestmark = pytest.mark.usefixtures("torch_on_numpy")

MATRICES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "inv": linalg.inv,
    "solve": lambda a: linalg.solve(a, a * 2 + 1),
    "solve from the right": lambda a: linalg.solve(a, a * 2 + 1, left=False),
    "cholesky": linalg.cholesky,
    "lu_factor": lambda a: linalg.lu_factor(a)[0],
    "matrix_power": lambda a: linalg.matrix_power(a, -2),
    "tensorinv": lambda a: linalg.tensorinv(a.reshape(2, 1, 2), 2),
}
GOOD = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
SINGULAR = torch.tensor([[1.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("name", MATRICES)
def test_a_recorded_step_factorizes_and_differentiates(name: str) -> None:
    def step(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaf = a.clone().requires_grad_()
        out = MATRICES[name](leaf)
        out.square().sum().backward()
        assert leaf.grad is not None
        return out.detach(), leaf.grad

    recorded = polyhal.torch.jit(step, strict=True)
    for k in range(4):
        a = GOOD + 0.1 * k * torch.eye(2)
        for found, expected in zip(recorded(a.to("polyhal")), step(a.double()), strict=True):
            torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    assert len(recorded.graphs) == 1


@pytest.mark.parametrize("name", MATRICES)
def test_a_replay_with_a_singular_matrix_raises_as_an_eager_call_and_writes_nothing_later(name: str) -> None:
    total = torch.zeros((), device="polyhal")

    def step(a: torch.Tensor) -> torch.Tensor:
        out = MATRICES[name](a).sum()
        total.add_(out)
        return out

    recorded = polyhal.torch.jit(step, strict=True)
    good, singular = GOOD.to("polyhal"), SINGULAR.to("polyhal")
    for _ in range(3):
        recorded(good)
    before = total.item()
    with pytest.raises(linalg.LinAlgError):
        recorded(singular)
    assert total.item() == before
    assert recorded(good).item() == pytest.approx(MATRICES[name](GOOD).sum().item(), rel=1e-5)
    assert total.item() == pytest.approx(before * 4 / 3, rel=1e-5)


def test_a_decomposition_that_returns_its_status_raises_nothing() -> None:
    recorded = polyhal.torch.jit(lambda a: linalg.inv_ex(a).info, strict=True)
    for a, expected in [(GOOD, 0), (GOOD, 0), (GOOD, 0), (SINGULAR, 2), (GOOD, 0)]:
        assert recorded(a.to("polyhal")).item() == expected


@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_function_raises_for_singular_matrices() -> None:
    compiled = torch.compile(lambda a: linalg.inv(a) * 2, backend="polyhal")
    torch.testing.assert_close(compiled(GOOD.to("polyhal")).cpu(), linalg.inv(GOOD) * 2)
    with pytest.raises(linalg.LinAlgError):
        compiled(SINGULAR.to("polyhal"))
