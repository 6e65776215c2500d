"""Backward passes from some results of a captured step: inputs of the others have no gradient, rather than zeros."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyhal as ph
from polyhal import Tensor
from polyhal.nn import functional as F

NUMBERS = np.linspace(0.5, 1.5, 9, dtype=np.float32).reshape(3, 3)
Function = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


def _overwritten(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    total = x.sum()
    result = (total, x.trace(), w * 2)
    total.copy_(w.sum())
    return result


def _overwritten_infinity(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x.sin()
    z = y * np.inf
    z.copy_(w)
    return y, z, w * 2


PROGRAMS: dict[str, Function] = {
    "products with infinity": lambda x, w: (x * w * np.inf, x.trunc(), w.sin()),
    "a matrix product with infinity": lambda x, w: (x @ (w * np.inf), x * 2, w.cos()),
    "an op without a slope": lambda x, w: (x.trunc(), w * 2, x * w),
    "parts of one tensor": lambda x, w: (x[:, :2] * np.inf, x[:, 1:] * w[:, :2], w * 2),
    "results of one op": lambda x, w: (x * w).unbind(0),
    "a value of several uses": lambda x, w: ((y := (x * w).sin()) * np.inf, F.relu(y), ph.concat([x, y]) * 3),
    "a sum that is overwritten": _overwritten,
    "a product with infinity that is overwritten": _overwritten_infinity,
    "an op without a slope of a product with infinity": lambda x, w: ((y := x * w), (y * np.inf).trunc(), w.cos()),
    "rows and a softmax": lambda x, w: (
        x[ph.tensor([0, 0, 2], device=x.device)],
        (x.T @ x).tanh(),
        (x @ w).softmax(-1),
    ),
}


def _gradients(function: Function, device: ph.Device, chosen: int) -> list[Tensor | None]:
    x, w = (ph.tensor(NUMBERS * k, device=device, requires_grad=True) for k in (1, 2))
    function(x, w)[chosen].sum().backward()
    return [x.grad, w.grad]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_one_result_are_the_gradients_of_an_eager_call(device: ph.Device, name: str) -> None:
    captured = ph.jit(PROGRAMS[name], warm_up=False)
    for chosen in (0, 1, 2, 0, 1):
        expected = _gradients(PROGRAMS[name], device, chosen)
        for found, wanted in zip(_gradients(captured, device, chosen), expected, strict=True):
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None:
                np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)  # of sums of three terms


def test_a_hook_of_a_value_without_a_gradient_does_not_run(device: ph.Device) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        y.register_hook(lambda g: g + 1)
        return y * 3, x * 2

    captured = ph.jit(function, warm_up=False)
    for chosen in (0, 1, 1):
        found, expected = (_gradients(f, device, chosen)[0] for f in (captured, function))
        assert found is not None
        assert expected is not None
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
