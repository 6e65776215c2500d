"""Memory of compiled functions: changed arguments, views, layouts, ownership and lifetime of results."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from compiled import (
    compare,
    differentiate,
    moved,
    relative_error,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def test_arguments_are_changed_in_place(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        x[:, 1:3] *= 2
        y.copy_(x.t())
        return x.sum() + y

    compare(f, [(torch.randn(3, 4), torch.randn(4, 3))] * 2, place)


def test_a_changed_argument_is_returned_too(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        before = x * 2
        view = x[1:]
        x.mul_(3)
        return before, view, x, x.t()

    compare(f, [(torch.randn(3, 4),)] * 2, place)


def test_views_are_returned(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.exp()
        return y.t(), y[1], y.view(-1)[::2], y.expand(2, *y.shape), x[0], x.t(), y

    compare(f, [(torch.randn(3, 4, requires_grad=True),)] * 2, place)


def test_a_compiled_function_changes_the_shape_of_a_tensor_in_place(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = (x * 2).unsqueeze_(0).transpose_(1, 2)
        view = y[0]
        y.squeeze_(0).mul_(3)
        return y.t_(), view, torch.quantile(x, 0.3, 1)

    compare(f, [(torch.randn(3, 4),)] * 2, place)


def test_results_in_one_memory_stay_so(place: str) -> None:
    @torch.compile(backend="polyhal")
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    y, flat = f(torch.zeros(2, 3, device=place))
    flat[0] = 5
    assert y[0, 0].item() == 5


def test_views_by_strides_are_read_and_replaced(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x.as_strided((2, 2), (1, 2), 1)
        z = (x.t() + 1).as_strided((3,), (2,))
        x.as_strided((3,), (3,), 1).mul_(5)
        return y * 2, z * 3, torch.as_strided_scatter(x * 1, x[0, :2] * 0, (2,), (2,), 3)

    compare(f, [(torch.randn(3, 4),)] * 2, place)


def test_layouts_of_results(place: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x.permute(0, 3, 1, 2) * 2
        return y, (x @ w).transpose(1, 2), x.transpose(0, 3).contiguous().permute(1, 0, 2, 3)

    compare(f, [(torch.randn(2, 3, 4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True))], place)


def test_arguments_in_any_layout(place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).relu()

    base = torch.randn(8, 10)
    cases = [
        (base[::2, 1:7], base.t()[:6, :5]),
        (base[1:5].t()[2:8].t(), torch.randn(6, 1).expand(6, 5)),
        (torch.randn(4, 6), base.t()[4:10, ::2]),
    ]
    compare(f, cases, place, dynamic=False)


def test_memory_of_numpy_at_any_address() -> None:

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled = torch.compile(f, backend="polyhal")
    data = np.arange(400, dtype=np.float32)
    for start in (0, 1, 3, 16, 5):
        x = torch.from_numpy(data[start : start + 100])
        assert torch.equal(compiled(x), f(x))
    bytes_ = np.zeros(401, np.uint8)[1:].view(np.float32)  # not a multiple of the size of an element
    assert torch.equal(compiled(torch.from_numpy(bytes_)), torch.ones(100))


def test_a_result_lives_on_when_the_program_runs_again(place: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="polyhal")
    results = [compiled(torch.full((1000,), float(i), device=place)) for i in range(4)]
    assert [r[0].item() for r in results] == [0, 2, 4, 6]
    views = [r[10:] for r in results]
    del results
    compiled(torch.full((1000,), 9.0, device=place))
    assert [v[-1].item() for v in views] == [0, 2, 4, 6]


def test_replaced_parameters_are_read_in_the_next_call(place: str) -> None:
    model = nn.Linear(3, 2).to(place)
    compiled = torch.compile(model, backend="polyhal")
    x = torch.randn(4, 3, device=place)
    compiled(x)
    with torch.no_grad():
        model.weight.zero_()
    assert torch.equal(compiled(x).cpu(), model.bias.detach().cpu().expand(4, 2))
    model.bias.data = torch.ones(2, device=place)
    assert torch.equal(compiled(x).cpu(), torch.ones(4, 2))
    with torch.no_grad():
        model.weight.data.add_(1)
    assert relative_error(compiled(x), x.cpu().sum(1, keepdim=True).expand(4, 2) + 1) < 1e-6


def test_a_parameter_that_is_a_view_moves_between_calls(place: str) -> None:
    compiled = torch.compile(lambda x, w: (x * w * w).sum(), backend="polyhal")
    whole = torch.arange(32.0, device=place)
    weight, xs = nn.Parameter(whole[:4]), torch.randn(2, 4)
    for start in (0, 16, 1, 20):
        weight.data = whole[start : start + 4]
        losses = [compiled(x.to(place), weight) for x in xs]
        weight.grad = None
        for loss in losses:  # backward passes read the arguments that each forward pass saved
            loss.backward()
        value = whole[start : start + 4].cpu()
        expected = torch.stack([(x * value * value).sum() for x in xs])
        assert relative_error(torch.stack(losses), expected) < 1e-5
        assert relative_error(weight.grad, 2 * xs.sum(0) * value) < 1e-5
        whole.mul_(2)


def test_results_share_memory_only_where_pytorch_says_so(place: str) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.clone(), x.clone(), x.flip(0), y.flip(0), y.double().float(), y[1:], x[:2], x.detach()

    compiled = torch.compile(f, backend="polyhal")
    outcomes = []
    for called, where in ((f, "cpu"), (compiled, place)):
        x = torch.zeros(3, device=where)
        results = called(x)
        for k, result in enumerate(results):
            result.add_(torch.arange(float(len(result)), device=where) + k)
        outcomes.append([r.tolist() for r in (*results, x)])
    assert outcomes[1] == outcomes[0]


def test_moved_keeps_layouts() -> None:
    x = torch.randn(3, 4).t()
    assert moved([x], "polyhal")[0].stride() == x.stride()


def test_gradients_of_a_changed_result_are_refused(place: str) -> None:
    compiled = torch.compile(torch.sigmoid, backend="polyhal")
    x = torch.randn(3, device=place, requires_grad=True)
    y = compiled(x)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        differentiate(y, [x])


def test_a_tensor_of_the_cpu_among_those_of_the_device() -> None:
    compiled = torch.compile(lambda x, s: x * s, backend="polyhal")
    x = torch.ones(3, device="polyhal")
    assert [compiled(x, torch.tensor(s))[0].item() for s in (2.0, 3.0)] == [2, 3]


def test_another_device_for_tensors_of_the_cpu() -> None:
    """The device does not share memory with the host: written arguments are copied back."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.t() @ w

        x.add_(1)
        return y

    calls = [(torch.randn(4, 3), torch.randn(4, 5)) for _ in range(2)]
    compare(f, calls, "cpu", options={"device": "sim"})
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    compiled = torch.compile(model, backend="polyhal", options={"device": "sim"})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(6, 4)
    for _ in range(3):
        found, expected = compiled(x), model(x)
        assert relative_error(found, expected) < 1e-5
        optimizer.zero_grad()
        found.square().sum().backward()
        optimizer.step()


def test_a_reset_frees_the_memory_of_compiled_functions(place: str) -> None:
    """PyTorch itself keeps each compiled function until then, with the values that it is specialized for."""

    def cycle(number: int) -> None:
        constant = torch.full((1000,), float(number), device=place)
        weight = torch.ones(1000, device=place, requires_grad=True)
        compiled = torch.compile(lambda x: (x * weight + constant).sin(), backend="polyhal")
        compiled(constant).sum().backward()

    held = []
    for number in range(6):
        cycle(number)
        if number % 2:
            torch.compiler.reset()
        gc.collect()
        held.append(torch.polyhal.memory_allocated())  # type: ignore[attr-defined]
    assert held[1::2] == [held[1]] * 3
    assert held[0] > held[1]


def test_a_backward_pass_runs_after_a_reset(place: str) -> None:
    compiled = torch.compile(lambda x: x.sin().square(), backend="polyhal")
    x = torch.ones(3, device=place, requires_grad=True)
    y = compiled(x)
    torch.compiler.reset()
    y.sum().backward()
    assert x.grad is not None
    assert relative_error(x.grad, 2 * x.detach().cpu().sin() * x.detach().cpu().cos()) < 1e-6
    assert relative_error(compiled(x), y.cpu()) < 1e-6
