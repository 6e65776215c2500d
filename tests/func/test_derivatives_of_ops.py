"""Gradient rules are linear in the incoming gradient: `jvp`, which differentiates them at zero, agrees with `vjp`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import Device, Tensor, func
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import float64
from polyhal.hal.ops import OPS
from polyhal.hal.system.reference.op_calls import OpCall
from polyhal.hal.testing.kit.gradients import differentiable_calls, is_differentiable
from polyhal.hal.testing.kit.scope import Scope

DEVICE = Device("numpy")
DIFFERENTIABLE = [op.name for op in OPS if is_differentiable(DEVICE, op, Scope(small=True))]


def smallest_call(name: str) -> OpCall:
    calls = differentiable_calls(DEVICE, OPS[name], float64, Scope(full=True))
    calls = [c for c in calls if c.outputs()[0].size > 1] or calls
    return min(calls, key=lambda c: sum(v.size for v in c.values if isinstance(v, np.ndarray)))


def moving(call: OpCall) -> list[int]:
    """Return the inputs that the tested function takes."""
    return [i for i, v in enumerate(call.values) if isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size]


def function_of(call: OpCall) -> Any:
    """Return the call as a function of its differentiable inputs, with the outputs that its gradient rule lists."""
    fixed = [Tensor(v, device=DEVICE) if isinstance(v, np.ndarray) else v for v in call.values]

    def function(*at: Tensor) -> tuple[Tensor, ...]:
        inputs = list(fixed)
        for i, x in zip(moving(call), at, strict=True):
            inputs[i] = x
        with dispatch.default_device(DEVICE):
            inputs = [tuple(inputs)] if call.op.schema.variadic else inputs
            result = call.op.call(*inputs, **call.params)
        results = result if isinstance(result, tuple) else (result,)
        rule = call.op.gradient
        names = {n[2:] for n in rule.needs if n.startswith("g_")} if rule else set()
        return results[:1] + tuple(
            r for n, r in zip(call.op.schema.outputs[1:], results[1:], strict=False) if n in names
        )

    return function


def random_like(tensors: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    rng = np.random.default_rng(seed)
    return tuple(Tensor(rng.uniform(-1, 1, x.shape), dtype=x.dtype, device=DEVICE) for x in tensors)


def product(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    return sum(float((x.numpy() * y.numpy()).sum()) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_derivative_in_a_direction_is_the_transposed_gradient(name: str) -> None:
    call = smallest_call(name)
    function = function_of(call)
    at = tuple(Tensor(call.values[i], dtype="float64", device=DEVICE) for i in moving(call))
    directions = random_like(at, 1)
    result, pull_back = func.vjp(function, *at)
    weights = random_like(result, 2)
    _, derivative = func.jvp(function, at, directions)
    first, second = product(derivative, weights), product(directions, pull_back(weights))
    assert first == pytest.approx(second, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivatives_agree_in_both_orders(name: str) -> None:
    call = smallest_call(name)
    function = function_of(call)
    at = tuple(Tensor(call.values[i], dtype="float64", device=DEVICE) for i in moving(call))
    weights = random_like(function(*at), 2)

    def loss(*xs: Tensor) -> Tensor:
        return sum((y * w).sum() for y, w in zip(function(*xs), weights, strict=True))  # type: ignore[return-value]

    slopes = func.grad(loss, argnums=tuple(range(len(at))))
    directions, others = random_like(at, 1), random_like(at, 3)
    _, forward = func.jvp(slopes, at, directions)
    _, pull_back = func.vjp(slopes, *at)
    assert product(forward, others) == pytest.approx(product(pull_back(others), directions), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5)])
def test_derivatives_of_logcumsumexp_equal_pytorchs(shape: tuple[int, ...], device: Device) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, shape)
    mine = Tensor(x, dtype="float32", device=device)
    theirs = torch.from_numpy(np.asarray(x))
    for dim in range(-1, max(len(shape), 1)):
        mine_of, theirs_of = (partial(lib.logcumsumexp, dim=dim) for lib in (ph, torch))
        expected = torch.autograd.functional.hessian(lambda t, of=theirs_of: (of(t) ** 2).sum(), theirs)
        found = func.hessian(lambda t, of=mine_of: (of(t) ** 2).sum())(mine)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
        expected = torch.autograd.functional.jacobian(theirs_of, theirs)
        np.testing.assert_allclose(func.jacfwd(mine_of)(mine).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_logcumsumexp_is_right_far_from_zero(device: Device) -> None:
    x = np.array([-np.inf, -np.inf, -900.0, 700.0, -np.inf, 699.0, 1000.0, 1000.0])
    theirs = torch.tensor(x, requires_grad=True)
    mine = Tensor(x, dtype="float32", device=device, requires_grad=True)
    weights = np.array([0.0, 0.0, 1.0, -2.0, 0.5, 1.0, 0.0, -1.0])
    (torch.logcumsumexp(theirs, 0)[2:] * torch.from_numpy(weights)[2:]).sum().backward()
    (ph.logcumsumexp(mine, 0)[2:] * Tensor(weights, dtype="float32", device=device)[2:]).sum().backward()
    assert mine.grad is not None
    assert theirs.grad is not None
    # PyTorch's gradient is NaN where all elements before are -inf.
    np.testing.assert_allclose(mine.grad.numpy()[2:], theirs.grad.numpy()[2:], rtol=1e-6, atol=1e-6)
    assert mine.grad.tolist()[:2] == [0, 0]


@pytest.mark.parametrize(
    ("size", "dtype", "rtol"), [(1e8, "float32", 1e-5), (-3e38, "float32", 1e-5), (6e4, "float16", 2e-3)]
)
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_the_gradient_of_logcumsumexp_of_equal_numbers_is_that_of_a_mean(
    size: float, dtype: str, rtol: float, captured: bool, device: Device
) -> None:
    """At large scores the result is the score itself: its rounding unit exceeds the logarithm of the number of terms."""
    x = Tensor(np.full((2, 300), size), dtype=dtype, device=device, requires_grad=True)
    weights = Tensor(np.linspace(-1, 1, 300), dtype=dtype, device=device)
    function = ph.jit(lambda x: ph.logcumsumexp(x, 1)) if captured else lambda x: ph.logcumsumexp(x, 1)
    (function(x) * weights).sum().backward()
    assert x.grad is not None
    shares = weights.float().numpy().astype(np.float64) / np.arange(1, 301)
    expected = np.broadcast_to(shares[::-1].cumsum()[::-1], (2, 300))
    np.testing.assert_allclose(x.grad.float().numpy(), expected, rtol=rtol, atol=rtol)
