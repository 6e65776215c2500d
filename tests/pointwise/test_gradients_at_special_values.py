"""Gradients of pointwise functions at zeros, infinities and NaN equal PyTorch's, except for documented differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import Device, Tensor

INF, NAN = np.inf, np.nan
VALUES = (INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 30.0, -30.0, 1e10, -1e10, 1e300, -1e300, 1e-300)
PAIRED = VALUES[:11]

Function = Callable[..., Any]
"""Takes a library and tensors."""


def _named(name: str, **options: Any) -> Function:
    """Return a function of both libraries, from the top level, `special` or `nn.functional`."""

    def function(lib: Any, *xs: Any) -> Any:
        homes = (lib, lib.special, lib.nn.functional)
        return next(getattr(home, name) for home in homes if hasattr(home, name))(*xs, **options)

    return function


UNARY: dict[str, Function] = {
    name: _named(name)
    for name in [
        "abs",
        "sign",
        "square",
        "reciprocal",
        "floor",
        "ceil",
        "trunc",
        "round",
        "frac",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "sigmoid",
        "erf",
        "erfc",
        "erfinv",
        "lgamma",
        "digamma",
        "logit",
        "sinc",
        "i0",
        "i0e",
        "i1",
        "i1e",
        "erfcx",
        "ndtr",
        "log_ndtr",
        "ndtri",
        "entr",
        "leaky_relu",
        "relu",
        "elu",
        "silu",
        "softplus",
        "gelu",
        "celu",
        "selu",
        "mish",
        "softsign",
        "tanhshrink",
        "logsigmoid",
        "hardtanh",
        "relu6",
        "hardsigmoid",
        "hardswish",
        "hardshrink",
        "softshrink",
        "nan_to_num",
        "deg2rad",
    ]
}
UNARY |= {
    "gelu of tanh": _named("gelu", approximate="tanh"),
    "threshold": _named("threshold", threshold=1.0, value=2.0),
    "clamp": _named("clamp", min=-1.0, max=1.0),
    "clamp below": _named("clamp", min=-1.0),
    "clamp above": _named("clamp", max=1.0),
    **{f"x ** {e}": lambda lib, x, e=e: x**e for e in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -0.5)},
    **{f"{e} ** x": lambda lib, x, e=e: e**x for e in (0.0, 0.5, 1.0, 2.0)},
}
BINARY: dict[str, Function] = {
    name: _named(name)
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "pow",
        "atan2",
        "hypot",
        "logaddexp",
        "logaddexp2",
        "xlogy",
        "xlog1py",
        "copysign",
        "fmod",
        "remainder",
    ]
}
BINARY |= {
    "truncating divide": _named("div", rounding_mode="trunc"),
    "floor_divide": _named("div", rounding_mode="floor"),
    "lerp": _named("lerp", weight=0.3),
    "where": lambda lib, x, y: lib.where(x > y, x, y),
}


def _poles(x: float, *_: float) -> bool:
    return x < 0 and x == np.floor(x)


DIFFERENT: dict[str, tuple[Callable[..., bool], str]] = {
    "abs": (lambda x: np.isnan(x), "NaN stays NaN; PyTorch's sign of NaN is 0"),
    "acosh": (lambda x: x <= -1, "NaN outside the domain, as the value is; PyTorch's formula is finite there"),
    "digamma": (_poles, "infinite at a pole; PyTorch has the square of a rounded sine"),
    "logit": (
        lambda x: x == 0 and np.signbit(x),
        "PyTorch's infinity has one sign or the other by the length of the tensor",
    ),
    "rsqrt": (
        lambda x: x == 0 and np.signbit(x),
        "PyTorch's infinity has one sign or the other by the length of the tensor",
    ),
    "gelu of tanh": (
        lambda x: 1e100 < abs(x) < INF,
        "the limits, 1 and 0; PyTorch's formula is a product of 0 and infinity",
    ),
    "hardswish": (lambda x: np.isnan(x), "NaN stays NaN; PyTorch has 1 or NaN by the length of the tensor"),
    "sinc": (lambda x: 0 < abs(x) < 1e-299, "its series; in PyTorch the difference of sine and cosine is 0"),
    "i1": (
        lambda x: np.isnan(x) or abs(x) > 1e3,
        "NaN stays NaN, and an overflow is infinite; in PyTorch they are 0.5 and NaN",
    ),
    "i1e": (lambda x: np.isnan(x), "NaN stays NaN; PyTorch takes it for 0"),
    "erfcx": (lambda x: x > 1e3, "-1 / (sqrt(pi) x^2); in PyTorch's formula terms cancel, and infinity multiplies 0"),
    "log_ndtr": (lambda x: x <= -1e10, "-x far below; PyTorch's formula is a product of 0 and infinity"),
    "softsign": (lambda x: np.isinf(x), "the limit, 0; PyTorch's formula is a quotient of infinities"),
    "hypot": (lambda x, y: x == y == 0, "0 of all subgradients; PyTorch divides 0 by 0"),
    "logaddexp": (lambda x, y: x == y, "equal shares; PyTorch subtracts equal infinities"),
    "logaddexp2": (lambda x, y: x == y, "equal shares; PyTorch subtracts equal infinities"),
    "copysign": (lambda x, y: not np.isfinite(x), "the sign that is given; PyTorch divides the result by x"),
}
"""Intended differences from PyTorch's gradients, with reasons."""


def gradients(lib: Any, function: Function, arguments: list[np.ndarray], **options: Any) -> list[np.ndarray]:
    xs = [(torch.tensor if lib is torch else Tensor)(a, requires_grad=True, **options) for a in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = function(lib, *xs)
        out.backward(lib.ones_like(out))
    return [np.zeros(a.shape) if x.grad is None else x.grad.numpy() for x, a in zip(xs, arguments, strict=True)]


def assert_equal(name: str, arguments: list[np.ndarray], found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    differs, _ = DIFFERENT.get(name, (lambda *_: False, ""))
    compared = np.array([not differs(*at) for at in zip(*arguments, strict=True)])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine[compared], theirs[compared], rtol=1e-6, atol=1e-300)


@pytest.mark.parametrize("name", UNARY)
def test_the_gradient_of_one_argument_equals_pytorchs(name: str) -> None:
    arguments = [np.array(VALUES)]
    found = gradients(ph, UNARY[name], arguments, dtype="float64", device="numpy")
    assert_equal(name, arguments, found, gradients(torch, UNARY[name], arguments))


@pytest.mark.parametrize("name", BINARY)
def test_the_gradients_of_two_arguments_equal_pytorchs(name: str) -> None:
    arguments = [a.ravel() for a in np.meshgrid(PAIRED, PAIRED)]
    found = gradients(ph, BINARY[name], arguments, dtype="float64", device="numpy")
    assert_equal(name, arguments, found, gradients(torch, BINARY[name], arguments))


@pytest.mark.parametrize("name", ["logit", "digamma", "hardswish", "hardshrink", "clamp", "sinc"])
def test_every_device_has_these_gradients(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")  # the derivative of digamma runs on the host
    values = np.array([v for v in VALUES if not 1e9 < abs(v) < INF and v not in (1e-300, -1e-300)])
    found = gradients(ph, UNARY[name], [values], dtype="float32", device=device)
    expected = gradients(torch, UNARY[name], [values])
    differs, _ = DIFFERENT.get(name, (lambda *_: False, ""))
    compared = np.array([not differs(v) for v in values])
    np.testing.assert_allclose(found[0][compared], expected[0][compared], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", ["truncating divide", "floor_divide", "fmod", "remainder"])
def test_every_device_has_these_gradients_of_quotients(name: str, captured: bool, device: Device) -> None:
    arguments = [a.ravel() for a in np.meshgrid(PAIRED, PAIRED)]
    function = BINARY[name]
    if captured:
        step = ph.jit(lambda x, y: BINARY[name](ph, x, y))
        step(*(Tensor(a, dtype="float32", device=device, requires_grad=True) for a in arguments))
        function = lambda lib, x, y: step(x, y)  # noqa: E731
    found = gradients(ph, function, arguments, dtype="float32", device=device)
    assert_equal(name, arguments, found, gradients(torch, BINARY[name], arguments))


def test_the_gradient_of_logit_with_limits_is_zero_outside(device: Device) -> None:
    x = Tensor([-1.0, 0.5, 2.0], device=device, requires_grad=True)
    ph.logit(x, 0.1).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0, 4, 0], rtol=1e-6)


def test_the_gradient_of_sinc_exists_where_squares_vanish(device: Device) -> None:
    x = Tensor([1e-30, -1e-30, 1e-20], device=device, requires_grad=True)
    ph.sinc(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 0, atol=1e-6)


def test_the_gradient_of_erfcx_is_exact_where_its_terms_cancel(device: Device) -> None:
    points = np.array([4.5, 10.0, 300.0, 1e4, 1e6])
    x = Tensor(points, dtype="float32", device=device, requires_grad=True)
    ph.special.erfcx(x).sum().backward()
    nodes, weights = np.polynomial.laguerre.laggauss(40)
    integrals = np.exp(-((nodes / (2 * points[:, None])) ** 2)) @ (nodes * weights)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), -integrals / (np.sqrt(np.pi) * points**2), rtol=3e-6)


def test_the_second_gradient_of_erfcx_at_zero_is_two(device: Device) -> None:
    x = Tensor([-0.0, 0.0], device=device, requires_grad=True)
    (slope,) = ph.autograd.grad(ph.special.erfcx(x).sum(), x, create_graph=True)
    slope.sum().backward()
    # 2 erfcx(x) + 2 x erfcx'(x): both terms are exact there, but for the rounding of erfcx(0).
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [2.0, 2.0], rtol=1e-6)
