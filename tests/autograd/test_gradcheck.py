"""`gradcheck`, and PyTorch's older functions for Jacobians."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.autograd import Function, functional, gradcheck, gradgradcheck
from polyhal.autograd.gradient_check import GradcheckError
from polyhal.hal.errors import AutogradError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def leaf(*shape: int) -> ph.Tensor:
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    return ph.tensor(values, device="numpy", requires_grad=True)


class _WrongCube(Function):
    """x ** 3 whose gradient lacks a factor."""

    @staticmethod
    def forward(ctx: Any, x: ph.Tensor) -> ph.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: ph.Tensor) -> ph.Tensor:
        (x,) = ctx.saved_tensors
        return g * x * x


def test_right_gradients_pass() -> None:
    assert gradcheck(lambda x, y: (x * y.exp(), x.sum()), [leaf(2, 3), leaf(3)])
    assert gradgradcheck(lambda x, y: x * x * y.exp(), [leaf(2), leaf(2)])


def test_a_wrong_gradient_is_named() -> None:
    x = leaf(3)
    with pytest.raises(GradcheckError, match=r"input 0 at \(0,\)"):
        gradcheck(_WrongCube.apply, x)
    assert not gradcheck(_WrongCube.apply, x, raise_exception=False)


def test_inputs_without_gradients_are_refused() -> None:
    with pytest.raises(AutogradError, match="requires_grad=True"):
        gradcheck(lambda x: x, ph.ones((2,), device="numpy"))


def _cubes(x: Any, y: Any) -> Any:
    return (x * x * y).sum()


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
def test_older_functions_agree_with_torch(name: str) -> None:
    arrays = [np.random.default_rng(i).normal(size=3) for i in range(2)]
    ours = tuple(ph.tensor(a, device="numpy") for a in arrays)
    theirs = tuple(torch.tensor(a) for a in arrays)
    v: list[Any] = [] if name in ("vjp", "jacobian", "hessian") else [ours]
    w: list[Any] = [] if name in ("vjp", "jacobian", "hessian") else [theirs]
    got = getattr(functional, name)(_cubes, ours, *v)
    expected = getattr(torch.autograd.functional, name)(_cubes, theirs, *w)
    _compare(got, expected)


def _compare(got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(got, expected, strict=True):
            _compare(a, b)
    else:
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)
