"""Products with an addend in half precision: they round once, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import polyhal.torch
from tests.torch.comparison import agree

CALLS: dict[str, Callable[..., Any]] = {
    "addmm": torch.addmm,
    "addmm of a row": lambda c, a, b: torch.addmm(c[0], a, b),
    "addmm of a column": lambda c, a, b: torch.addmm(c[:, :1], a, b),
    "addmm in place": lambda c, a, b: c.clone().addmm_(a, b),
    "addmm with a factor of the addend": lambda c, a, b: torch.addmm(c, a, b, beta=0.5),
    "addmm without an addend": lambda c, a, b: torch.addmm(c, a, b, beta=0),
    "addmv": lambda c, a, b: torch.addmv(c[0], a, b[0]),
    "baddbmm of one matrix": lambda c, a, b: torch.baddbmm(c[None], a[None], b[None]),
    "add": lambda c, a, b: torch.add(c, a, alpha=0.3),
    "sub": lambda c, a, b: torch.sub(c, a, alpha=0.3),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CALLS)
def test_the_mean_error_is_at_most_that_of_the_cpu(torch_device: str, name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    call, operands = CALLS[name], [torch.randn(32, 32).to(dtype) for _ in range(3)]
    exact = call(*(x.double() for x in operands))
    found = call(*(x.to(torch_device) for x in operands)).cpu()
    assert found.dtype is dtype
    ours, theirs = ((x.double() - exact).abs().mean() for x in (found, call(*operands)))
    # A second rounding adds about a third; sums in another order of float32 (2**-24) change single roundings.
    assert ours <= 1.1 * theirs


@pytest.mark.parametrize("options", [{}, {"beta": 0.5}, {"alpha": 2.0}, {"beta": 0.0, "alpha": 0.5}], ids=str)
def test_values_and_gradients_agree_for_all_factors(torch_device: str, options: dict[str, float]) -> None:
    def run(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.addmm(c, a, b, **options),
            torch.addmm(c[0, 0], a, b, **options),
            torch.addmv(c[:, 0], a, b[:, 0], **options),
            torch.addmv(c[0, 0], a, b[:, 0], **options),
            torch.baddbmm(c, torch.stack([a, a]), torch.stack([b, -b]), **options),
            torch.addmm(c[:, :1], a[:, :0], b[:0], **options),
        ]

    operands = [torch.randn(s, requires_grad=True) for s in ((3, 4), (3, 5), (5, 4))]
    agree(run, *operands, device=torch_device)
    with pytest.raises(RuntimeError):
        torch.addmm(*(x.to(torch_device) for x in (operands[0], operands[1], operands[1])))


def test_a_recorded_step_takes_another_factor_in_each_run(torch_device: str) -> None:
    step = polyhal.torch.jit(lambda c, a, f: torch.addmm(c, a, a, beta=f, alpha=1 + f), strict=True)
    c, a = (torch.randn(4, 4).to(torch_device) for _ in range(2))
    for factor in (0.5, 0.25, 0.75, 0.1):
        expected = torch.addmm(c.cpu(), a.cpu(), a.cpu(), beta=factor, alpha=1 + factor)
        torch.testing.assert_close(step(c, a, factor).cpu(), expected, rtol=1e-5, atol=1e-5)
