"""Functions of complex infinities, NaNs and zeros, as the Array API and C99 (Annex G) have them; NumPy follows both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.autograd import gradcheck, gradgradcheck

PARTS = [-np.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan]
GRID = np.array([complex(a, b) for a in PARTS for b in PARTS])

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "log": np.log, "log10": np.log10, "log1p": np.log1p,
    "log2": np.log2, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    # NumPy's expm1 is NaN at infinities, where the standard requires exp(z) - 1.
    "expm1": lambda z: np.where(np.isfinite(z), np.expm1(z), np.exp(z) - 1),
}  # fmt: skip


def check_values(got: np.ndarray, expected: np.ndarray, z: np.ndarray) -> None:
    """Compare both parts. Signs next to a NaN are not specified, nor signs of zeros where neither part of `z` is finite."""
    got, expected = got.astype(np.complex128), expected.astype(np.complex128)
    for part, want, other in ((got.real, expected.real, expected.imag), (got.imag, expected.imag, expected.real)):
        known = ~np.isnan(other)
        np.testing.assert_allclose(part[known], want[known], rtol=2e-6, atol=1e-6, err_msg=str(z[known]))
        np.testing.assert_allclose(abs(part[~known]), abs(want[~known]), rtol=2e-6, atol=1e-6, err_msg=str(z[~known]))
        zero = known & (want == 0) & (np.isfinite(z.real) | np.isfinite(z.imag))
        np.testing.assert_array_equal(np.signbit(part[zero]), np.signbit(want[zero]), err_msg=f"signs at {z[zero]}")


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_special_values_are_those_of_c99(device: ph.Device, name: str) -> None:
    got = getattr(ph, name)(ph.tensor(GRID.astype(np.complex64), device=device)).numpy()
    check_values(got, FUNCTIONS[name](GRID), GRID)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_captured_functions_of_special_values_are_those_of_c99(device: ph.Device) -> None:
    step = ph.jit(lambda z: {name: getattr(ph, name)(z) for name in ("acosh", "atanh", "exp", "sqrt", "tan")})
    z = ph.tensor(GRID.astype(np.complex64), device=device)
    step(z)
    for name, got in step(z).items():
        check_values(got.numpy(), FUNCTIONS[name](GRID), GRID)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_products_and_quotients_of_special_values_are_pytorchs(device: ph.Device, captured: bool) -> None:
    some = np.array([complex(a, b) for a in (-np.inf, -1.0, 0.0, 2.0, np.nan) for b in (-1.0, 0.0, np.inf, np.nan)])
    x, y = (a.ravel() for a in np.meshgrid(some, some))
    function = ph.jit(lambda x, y: (x * y, x / y, ph.reciprocal(y))) if captured else lambda x, y: (x * y, x / y, 1 / y)
    operands = [ph.tensor(a.astype(np.complex64), device=device) for a in (x, y)]
    theirs = [torch.tensor(a) for a in (x, y)]
    wanted = theirs[0] * theirs[1], theirs[0] / theirs[1], torch.ones_like(theirs[1]) / theirs[1]
    for got, expected in zip(function(*operands), wanted, strict=True):
        for part in ("real", "imag"):
            np.testing.assert_allclose(getattr(got.numpy(), part), getattr(expected.numpy(), part), rtol=1e-6)
    for number in (0j, complex(2, np.inf), complex(-np.inf, 1), 3 - 4j):
        np.testing.assert_allclose((operands[0] / number).numpy(), (theirs[0] / number).numpy(), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("exponent", [0, 1, 2, -1, 0.5, 3, 1j, 2 - 1j, -1 - 1j], ids=str)
def test_powers_of_special_values_are_pytorchs(device: ph.Device, exponent: complex) -> None:
    z = np.array([0j, 1, -1, 2j, 0.5 - 2j, complex(-3, np.nan)])
    expected = (torch.tensor(z) ** exponent).numpy()
    x = ph.tensor(z.astype(np.complex64), device=device)
    for got in (x**exponent, x ** ph.tensor(np.complex64(exponent), device=device)):
        np.testing.assert_allclose(got.numpy(), np.where(exponent == 0, 1, expected), rtol=2e-6, atol=2e-6)


def check_powers(got: np.ndarray, x: Any, y: Any) -> None:
    """Compare with PyTorch, whose powers are C99's; but not its NaN for exponents of 0 and for powers of 0 that vanish.

    Finite results are at most e^(3 pi / 2), and have an error of some units in the last place of that.
    """
    x, y = (np.array(a, np.complex128) for a in np.broadcast_arrays(x, y))
    expected = (torch.tensor(x) ** torch.tensor(y)).numpy()
    expected = np.where(y == 0, 1.0, np.where((x == 0) & (y.real > 0), 0.0, expected))
    for part, want in ((got.real, expected.real), (got.imag, expected.imag)):
        np.testing.assert_allclose(part, want, rtol=5e-6, atol=8 * 2.0**-23 * np.exp(1.5 * np.pi))


_FEW = (-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan)
_FEW_NUMBERS = np.array([complex(a, b) for a in _FEW for b in _FEW])


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_powers_at_infinities_are_those_of_c99(device: ph.Device) -> None:
    x, y = (a.ravel().astype(np.complex64) for a in np.meshgrid(_FEW_NUMBERS, _FEW_NUMBERS))
    check_powers((ph.tensor(x, device=device) ** ph.tensor(y, device=device)).numpy(), x, y)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@pytest.mark.parametrize("number", [complex(np.inf, np.inf), complex(-np.inf, 2), complex(2, np.inf), 2j], ids=str)
def test_powers_with_infinite_numbers_are_those_of_c99(device: ph.Device, number: complex) -> None:
    z = ph.tensor(_FEW_NUMBERS.astype(np.complex64), device=device)
    check_powers((z**number).numpy(), _FEW_NUMBERS, number)
    if np.isfinite(number):
        check_powers((number**z).numpy(), number, _FEW_NUMBERS)


@pytest.mark.parametrize("name", [*FUNCTIONS, "reciprocal", "rsqrt", "square"])
def test_gradients_on_the_axes_are_finite_differences(name: str) -> None:
    """Beside the branch cuts: acosh has one on the real axis up to 1, others have theirs from 1 or up to 0 or -1."""
    z = np.array([2.0 if name == "acosh" else 0.5, 0.5j, -0.5j, 0.7 + 2j, -0.7 - 1j, 2 - 0.5j])
    x = ph.tensor(np.stack([z.real, z.imag], -1), device="numpy", requires_grad=True)

    def function(x: Any) -> Any:
        result = getattr(ph, name)(ph.view_as_complex(x))
        return result if name == "abs" else ph.view_as_real(result)

    assert gradcheck(function, [x])
    assert name not in ("acosh", "exp", "log", "sqrt") or gradgradcheck(function, [x])


def test_gradients_of_powers_on_the_real_axis_are_pytorchs(device: ph.Device) -> None:
    z = np.array([0.5, 2, 3, 0], np.complex64)
    for exponent in (0, 1, 2, 3, 2.5):
        ours, theirs = ph.tensor(z, device=device, requires_grad=True), torch.tensor(z, requires_grad=True)
        (ours**exponent).imag.sum().backward()
        (theirs**exponent).imag.sum().backward()
        assert ours.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5)
