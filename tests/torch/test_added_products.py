"""Products with an addend in half precision: they round once, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import polyhal.torch
from tests.torch.comparison import agree, launches_of

CALLS: dict[str, Callable[..., Any]] = {
    "addmm": torch.addmm,
    "addmm of a row": lambda c, a, b: torch.addmm(c[0], a, b),
    "addmm of a column": lambda c, a, b: torch.addmm(c[:, :1], a, b),
    "addmm in place": lambda c, a, b: c.clone().addmm_(a, b),
    "addmm with a factor of the addend": lambda c, a, b: torch.addmm(c, a, b, beta=0.5),
    "addmm without an addend": lambda c, a, b: torch.addmm(c, a, b, beta=0),
    "addmv": lambda c, a, b: torch.addmv(c[0], a, b[0]),
    "addmm with a factor of the product": lambda c, a, b: torch.addmm(c, a, b, alpha=0.3),
    "addmm with both factors": lambda c, a, b: torch.addmm(c, a, b, beta=0.7, alpha=0.3),
    "addmm of a scaled product alone": lambda c, a, b: torch.addmm(c, a, b, beta=0, alpha=0.3),
    "addmv with both factors": lambda c, a, b: torch.addmv(c[0], a, b[0], beta=0.7, alpha=0.3),
    "baddbmm of one matrix": lambda c, a, b: torch.baddbmm(c[None], a[None], b[None]),
    "baddbmm": lambda c, a, b: torch.baddbmm(batch(c), batch(a), batch(b)),
    "baddbmm of a row": lambda c, a, b: torch.baddbmm(c[:1], batch(a), batch(b)),
    "baddbmm with both factors": lambda c, a, b: torch.baddbmm(batch(c), batch(a), batch(b), beta=0.7, alpha=0.3),
    "baddbmm in place": lambda c, a, b: batch(c).baddbmm_(batch(a), batch(b), alpha=0.3),
    "bmm": lambda c, a, b: torch.bmm(batch(a), batch(b)),
    "addbmm": lambda c, a, b: torch.addbmm(c, batch(a), batch(b)),
    "addbmm with both factors": lambda c, a, b: torch.addbmm(c, batch(a), batch(b), beta=0.7, alpha=0.3),
    "addr": lambda c, a, b: torch.addr(c, a[0], b[0]),
    "addr with both factors": lambda c, a, b: torch.addr(c, a[0], b[0], beta=0.7, alpha=0.3),
    "linear": lambda c, a, b: torch.nn.functional.linear(a, b, c[0]),
    "linear of a batch": lambda c, a, b: torch.nn.functional.linear(batch(a), b, c[0]),
    "add": lambda c, a, b: torch.add(c, a, alpha=0.3),
    "sub": lambda c, a, b: torch.sub(c, a, alpha=0.3),
    "rsub": lambda c, a, b: torch.rsub(c, a, alpha=0.3),
    "addcmul": lambda c, a, b: torch.addcmul(c, a, b, value=0.3),
    "addcdiv": lambda c, a, b: torch.addcdiv(c, a, b.abs() + 1, value=0.3),
    "lerp": lambda c, a, b: torch.lerp(c, a, 0.3),
    "lerp with weights of elements": lambda c, a, b: torch.lerp(c, a, b.sigmoid()),
    "add of lists": lambda c, a, b: torch.stack(torch._foreach_add([c, a], [a, b], alpha=0.3)),
    "sub of lists": lambda c, a, b: torch.stack(torch._foreach_sub([c, a], [a, b], alpha=0.3)),
    "addcmul of lists": lambda c, a, b: torch.stack(torch._foreach_addcmul([c, a], [a, b], [b, c], value=0.3)),
    "addcmul of lists with numbers": lambda c, a, b: torch.stack(
        torch._foreach_addcmul([c, a], [a, b], [b, c], [0.3, 0.7])
    ),
    "addcdiv of lists": lambda c, a, b: torch.stack(
        torch._foreach_addcdiv([c, a], [a, b], [b.abs() + 1, c.abs() + 1], value=0.3)
    ),
    "lerp of lists": lambda c, a, b: torch.stack(torch._foreach_lerp([c, a], [a, b], 0.7)),
}


def batch(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x.flip(0), x.T])


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


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch.compiler.reset()  # graphs of another device
    return torch.compile(function, backend="polyhal", fullgraph=True)


MODES: dict[str, Callable[..., Any]] = {
    "recorded": polyhal.torch.jit,
    "compiled": _compiled,
}


@pytest.mark.parametrize(("mode", "dtype"), [("recorded", torch.bfloat16), ("compiled", torch.float16)])
def test_the_mean_error_of_captured_steps_is_at_most_that_of_the_cpu(
    torch_device: str, mode: str, dtype: torch.dtype
) -> None:
    def call(*operands: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: f(*operands) for name, f in CALLS.items()}

    torch.manual_seed(0)
    operands = [torch.randn(32, 32).to(dtype) for _ in range(3)]
    step, arguments = MODES[mode](call), [x.to(torch_device) for x in operands]
    for _ in range(2 if mode == "recorded" else 1):
        found = step(*arguments)
    exact, theirs = call(*(x.double() for x in operands)), call(*operands)
    for name, x in found.items():
        ours, cpu = ((y.cpu().double() - exact[name]).abs().mean() for y in (x, theirs[name]))
        assert ours <= 1.1 * cpu, name  # as above


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


def test_a_recorded_product_with_factors_is_one_op(torch_device: str) -> None:
    """Where the device has kernels with epilogues: the factor of the addend is one of the steps, and the activation, too."""
    step = polyhal.torch.jit(
        lambda c, a: torch.addmm(c, a, a, beta=0.5).relu() + torch.addmm(c, a, a, beta=0.7, alpha=2)
    )
    c, a = (torch.randn(4, 4) for _ in range(2))
    expected = torch.addmm(c, a, a, beta=0.5).relu() + torch.addmm(c, a, a, beta=0.7, alpha=2)
    for _ in range(3):
        torch.testing.assert_close(step(c.to(torch_device), a.to(torch_device)).cpu(), expected, rtol=1e-5, atol=1e-5)
    operands = c.to(torch_device), a.to(torch_device)
    if polyhal.get_default_device().name.startswith("opencl"):
        assert launches_of(lambda: step(*operands)) == 2
