"""Gradients of piecewise linear and piecewise constant functions: second derivatives are zeros, as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as torch_functional

import polyhal
from polyhal import Device
from polyhal.hal.core import dispatch
from polyhal.nn import functional

OURS = SimpleNamespace(lib=polyhal, F=functional, array=lambda x: x.detach().numpy())
THEIRS = SimpleNamespace(lib=torch, F=torch_functional, array=lambda x: x.numpy(force=True))
Function = Callable[[Any, Any], Any]


def _conv(m: Any, x: Any) -> Any:
    return m.F.conv2d(x, m.lib.ones((1, 2, 2, 2)))


def _transposed(m: Any, x: Any) -> Any:
    return m.F.conv_transpose2d(x, m.lib.ones((2, 1, 2, 2)))


FUNCTIONS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "relu": (lambda m, x: m.F.relu(x), (3,)),
    "leaky_relu": (lambda m, x: m.F.leaky_relu(x), (3,)),
    "relu6": (lambda m, x: m.F.relu6(x), (3,)),
    "hardtanh": (lambda m, x: m.F.hardtanh(x), (3,)),
    "hardshrink": (lambda m, x: m.F.hardshrink(x), (3,)),
    "softshrink": (lambda m, x: m.F.softshrink(x), (3,)),
    "threshold": (lambda m, x: m.F.threshold(x, 0.1, 0.2), (3,)),
    "prelu": (lambda m, x: m.F.prelu(x, m.lib.tensor([0.2])), (3,)),
    "copysign": (lambda m, x: m.lib.copysign(x, -x.detach()), (3,)),
    "abs": (lambda m, x: m.lib.abs(x), (3,)),
    "clamp": (lambda m, x: m.lib.clamp(x, -0.5, 0.5), (3,)),
    "floor": (lambda m, x: m.lib.floor(x), (3,)),
    "sign": (lambda m, x: m.lib.sign(x), (3,)),
    "matrix_power": (lambda m, x: m.lib.linalg.matrix_power(x, 0), (3, 3)),
    "linear": (lambda m, x: m.F.linear(x, m.lib.ones((2, 3))), (3,)),
    "max_pool1d": (lambda m, x: m.F.max_pool1d(x, 2), (1, 2, 4)),
    "max_pool2d": (lambda m, x: m.F.max_pool2d(x, 2), (1, 2, 4, 4)),
    "avg_pool2d": (lambda m, x: m.F.avg_pool2d(x, 2), (1, 2, 4, 4)),
    "conv2d": (_conv, (1, 2, 3, 3)),
    "conv_transpose2d": (_transposed, (1, 2, 3, 3)),
    "smooth_l1_loss": (lambda m, x: m.F.smooth_l1_loss(x, m.lib.zeros(3), reduction="none"), (3,)),
    "huber_loss": (lambda m, x: m.F.huber_loss(x * 9, m.lib.zeros(3), reduction="none"), (3,)),
    "elu": (lambda m, x: m.F.elu(x), (3,)),
    "celu": (lambda m, x: m.F.celu(x, 2.0), (3,)),
    "selu": (lambda m, x: m.F.selu(x), (3,)),
}


def _second(m: Any, function: Function, values: np.ndarray, weighted: bool, grad: Any) -> tuple[bool, Any]:
    """Return whether the gradient at `values` requires a gradient, and the second derivative of the sum (or None)."""
    x, w = m.lib.tensor(values, requires_grad=True), m.lib.tensor(0.75, requires_grad=True)
    y = function(m, x * 1.0)
    (g,) = grad(((w * y) if weighted else y).sum(), x, create_graph=True)
    if not g.requires_grad:
        return False, None
    (g * 0.5).sum().backward()
    return True, None if x.grad is None else m.array(x.grad)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_differentiated_again_as_by_pytorch(name: str, weighted: bool, device: Device) -> None:
    function, shape = FUNCTIONS[name]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with dispatch.default_device(device):
        found = _second(OURS, function, values, weighted, polyhal.grad)
    expected = _second(THEIRS, function, values, weighted, torch.autograd.grad)
    assert found[0] == expected[0]
    assert (found[1] is None) == (expected[1] is None)
    if expected[1] is not None:
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_second_derivatives_at_the_joint_are_right_sided(name: str, device: Device) -> None:
    values = np.zeros(3, np.float32)
    with dispatch.default_device(device):
        found = _second(OURS, FUNCTIONS[name][0], values, False, polyhal.grad)
    np.testing.assert_array_equal(found[1], _second(THEIRS, FUNCTIONS[name][0], values, False, torch.autograd.grad)[1])


def test_a_second_derivative_of_a_network_of_relu_is_zeros(device: Device) -> None:
    x = polyhal.ones((2, 3), device=device, requires_grad=True)
    w = polyhal.ones((3, 3), device=device, requires_grad=True)
    (g,) = polyhal.grad((functional.relu(x @ w) @ w).sum(), x, create_graph=True)
    (second,) = polyhal.grad(g.sum(), x)
    np.testing.assert_array_equal(second.numpy(), np.zeros((2, 3)))


def test_the_second_derivative_of_sinc_at_zero_is_that_of_its_series(device: Device) -> None:
    x = polyhal.tensor([0.0, 1e-4, 0.2], device=device, requires_grad=True)
    (g,) = polyhal.grad(polyhal.sinc(x).sum(), x, create_graph=True)
    (second,) = polyhal.grad(g.sum(), x)
    z = np.pi * np.array([1e-4, 0.2])
    # (sin(z) / z)'' = -sin(z) / z - 2 cos(z) / z^2 + 2 sin(z) / z^3, whose terms cancel near 0: there -1/3 + z^2 / 10.
    far = -np.sin(z[1]) / z[1] - 2 * np.cos(z[1]) / z[1] ** 2 + 2 * np.sin(z[1]) / z[1] ** 3
    expected = np.pi**2 * np.array([-1 / 3, -1 / 3 + z[0] ** 2 / 10, far])
    np.testing.assert_allclose(second.numpy(), expected, rtol=1e-5)  # sums of float32 of some dozen units


AT_THE_ENDS: dict[str, Function] = {
    "relu": lambda m, x: m.F.relu(x),
    "leaky_relu": lambda m, x: m.F.leaky_relu(x),
    "smooth_l1_loss": lambda m, x: m.F.smooth_l1_loss(x, m.lib.ones(4), reduction="none", beta=0.5),
    "huber_loss": lambda m, x: m.F.huber_loss(x, m.lib.ones(4), reduction="none", delta=2.0),
    "fmod": lambda m, x: m.lib.fmod(m.lib.ones(4), x * 0.0),
}


@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_gradients_at_infinities_and_nan_are_those_of_pytorch(name: str, device: Device) -> None:
    if device.name.startswith("wgpu"):
        pytest.skip("WGSL makes no promise for infinities and NaN")
    values = np.array([math.nan, math.inf, -math.inf, 0.5], np.float32)
    function = AT_THE_ENDS[name]
    with dispatch.default_device(device):
        ours = polyhal.tensor(values, requires_grad=True)
        function(OURS, ours).sum().backward()
    theirs = torch.tensor(values, requires_grad=True)
    function(THEIRS, theirs).sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    sure = ~np.isnan(values) | ("loss" not in name)  # the derivative of |x| at NaN is NaN, in PyTorch 0
    np.testing.assert_allclose(ours.grad.numpy()[sure], theirs.grad.numpy()[sure], rtol=1e-6)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "sign"])
def test_infinite_gradients_of_constants_are_zeros(name: str, device: Device) -> None:
    x = polyhal.tensor([0.5, 1.5], device=device, requires_grad=True)
    (getattr(polyhal, name)(x) * math.inf).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 0.0])
