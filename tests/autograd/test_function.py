"""Functions with a gradient of the user's own."""

from __future__ import annotations

from typing import Any

import pytest

import polyhal
from polyhal import Tensor
from polyhal.autograd import Context, Function
from polyhal.hal.device import Device
from polyhal.hal.errors import AutogradError


class Cube(Function):
    """x^3, with a gradient that is itself differentiable."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Context, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


class Both(Function):
    """Sum and difference; the second argument is no tensor."""

    needs: tuple[bool, ...] = ()

    @staticmethod
    def forward(ctx: Context, x: Tensor, shift: float, y: Tensor) -> Any:
        Both.needs = ctx.needs_input_grad
        return x + y + shift, x - y

    @staticmethod
    def backward(ctx: Context, g: Tensor, h: Tensor) -> Any:
        return g + h, None, g - h


def test_forward_and_backward(device: Device) -> None:
    x = Tensor([2.0, -1.0], device=device, requires_grad=True)
    y = Cube.apply(x)
    assert y.tolist() == [8.0, -1.0]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0, 3.0]


def test_second_derivative(device: Device) -> None:
    x = Tensor([2.0], device=device, requires_grad=True)
    (g,) = polyhal.grad(Cube.apply(x).sum(), [x], create_graph=True)
    assert g is not None
    (gg,) = polyhal.grad(g.sum(), [x])
    assert gg is not None
    assert gg.item() == 12.0


def test_several_results_and_plain_arguments(device: Device) -> None:
    x, y = Tensor([1.0], device=device, requires_grad=True), Tensor([5.0], device=device)
    total, difference = Both.apply(x, 0.5, y)
    assert (total.item(), difference.item()) == (6.5, -4.0)
    assert Both.needs == (True, False, False)
    (total * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 2.0
    assert y.grad is None


def test_without_a_tape_nothing_is_recorded(device: Device) -> None:
    x = Tensor([2.0], device=device, requires_grad=True)
    with polyhal.no_grad():
        assert not Cube.apply(x).requires_grad
    assert not Cube.apply(x.detach()).requires_grad


def test_a_kept_tensor_that_changed_is_noticed(device: Device) -> None:
    x = Tensor([2.0], device=device, requires_grad=True)
    y = Cube.apply(x).sum()
    with polyhal.no_grad():
        x.fill_(1.0)
    with pytest.raises(AutogradError, match="kept by save_for_backward was changed in place"):
        y.backward()


def test_the_wrong_number_of_gradients(device: Device) -> None:
    class Short(Function):
        @staticmethod
        def forward(ctx: Context, x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def backward(ctx: Context, g: Tensor) -> Tensor:
            return g

    x = Tensor([2.0], device=device, requires_grad=True)
    with pytest.raises(
        AutogradError, match=r"\[Short\] backward returned 1 gradients; expected 2, one per argument of forward"
    ):
        Short.apply(x, x).sum().backward()


def test_missing_halves() -> None:
    x = Tensor([2.0], device="numpy", requires_grad=True)
    with pytest.raises(NotImplementedError, match="defines forward"):
        Function.apply(x)
