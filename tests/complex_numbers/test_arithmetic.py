"""Ops on complex tensors against NumPy, their gradients against finite differences, and typical programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.autograd import gradcheck, gradgradcheck
from polyhal.hal.errors import AutogradError, ShapeError, UnsupportedDTypeError


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(np.complex64)


UNARY = [
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "expm1", "isfinite",
    "log", "log10", "log1p", "log2", "negative", "reciprocal", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number_are_numpys(name: str) -> None:
    z = numbers(5, 7)
    of_numpy = {
        "acos": "arccos",
        "acosh": "arccosh",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atanh": "arctanh",
    }
    expected = getattr(np, of_numpy.get(name, name))(z.astype(np.complex128))
    np.testing.assert_allclose(getattr(ph, name)(ph.tensor(z, device="numpy")).numpy(), expected, rtol=2e-5, atol=2e-6)


def test_atanh_is_odd_near_its_poles() -> None:
    z = ph.tensor(np.array([-1 + 1e-4j, 1 - 1e-4j, -0.992 - 0.0241j, 0j], np.complex64), device="numpy")
    expected = np.arctanh(z.numpy().astype(np.complex128))
    np.testing.assert_allclose(ph.atanh(z).numpy(), expected, rtol=1e-6)
    assert gradcheck(ph.atanh, (ph.tensor(np.array([0.3j, -0.5 + 0.2j, 0.5]), device="numpy", requires_grad=True),))


def test_arithmetic_is_numpys_on_every_device(device: ph.Device) -> None:
    a, b, r = numbers(3, 4), numbers(4, seed=1), np.linspace(1, 2, 4, dtype=np.float32)
    x, y, s = (ph.tensor(v, device=device) for v in (a, b, r))
    pairs = [
        (x + y, a + b),
        (x - y, a - b),
        (x * y, a * b),
        (x / y, a / b),
        (x * s, a * r),
        (s / x, r / a),
        (s - x, r - a),
        (x + 2, a + 2),
        (2j * x, 2j * a),
        (1 / x, 1 / a),
        (x**2, a**2),
        (s * 1j, r * 1j),
        (x == x, a == a),
        (x != y, a != b),
        (x.sum(0), a.sum(0)),
        (x.mean(), a.mean()),
        (x @ y, a @ b),
        (x.mH, a.T.conj()),
        (x.prod(1), a.prod(1)),
        (x[1:, ::2], a[1:, ::2]),
        (ph.where(x.real > 0, x, y), np.where(a.real > 0, a, b)),
        (ph.where(x - x * (x.real > 0), x, y.real), np.where(a - a * (a.real > 0), a, b.real)),
        (ph.concat([x, y.reshape(1, 4)]), np.concatenate([a, b[None]])),
        (x.reshape(2, 6).T, a.reshape(2, 6).T),
        (x.cumsum(1), a.cumsum(1)),
        (x.var(1), a.var(1)),
        (x.std(), a.std()),
    ]
    for got, expected in pairs:
        assert got.shape == expected.shape
        assert got.dtype == ph.as_tensor(expected, device=device).dtype
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_quotients_of_extreme_numbers_neither_overflow_nor_vanish() -> None:
    for size in (1e-30, 1e30):
        z = ph.tensor([size * (1 + 2j)], device="numpy")
        np.testing.assert_allclose((z / z).numpy(), [1], rtol=1e-6)
        np.testing.assert_allclose(z.abs().numpy(), [size * 5**0.5], rtol=1e-6)
        np.testing.assert_allclose(z.sqrt().numpy(), np.sqrt(np.complex128(size * (1 + 2j))), rtol=1e-6)


def test_promotion() -> None:
    z = ph.tensor([1j], device="numpy")
    assert (z + ph.tensor([1.0], dtype=ph.float64, device="numpy")).dtype is ph.complex128
    assert (z * ph.tensor([1], device="numpy")).dtype is ph.complex64
    assert (z * 2j).dtype is ph.complex64
    assert (ph.tensor([1], device="numpy") * 1j).dtype is ph.complex64
    assert ph.promote_types(ph.complex64, ph.float64) is ph.complex128
    assert ph.result_type(ph.tensor([1.0], dtype=ph.float64, device="numpy"), 1j) is ph.complex128
    assert z.cdouble().cfloat().real.dtype is ph.float32
    assert z.bool().tolist() == [True]
    assert ph.finfo(ph.complex64).eps == ph.finfo(ph.float32).eps


def test_parts_are_views(device: ph.Device) -> None:
    z = ph.tensor(numbers(3), device=device)
    z.real[0] = 7
    z.imag[:] = 0
    assert z[0].item() == 7
    assert ph.view_as_complex(ph.view_as_real(z)).tolist() == z.tolist()


def test_sums_by_index_are_numpys(device: ph.Device) -> None:
    a, b, index = numbers(4), numbers(3, seed=1), np.array([1, 1, 3])
    z = ph.tensor(a, device=device).index_add(0, ph.tensor(index, device=device), ph.tensor(b, device=device))
    np.add.at(a, index, b)
    np.testing.assert_allclose(z.numpy(), a, rtol=1e-6)


def test_writes_in_place(device: ph.Device) -> None:
    a = numbers(3, 2)
    z = ph.tensor(a, device=device)
    z += 1j
    z.mul_(2j)
    z[1] = 3
    z[:, 0] = ph.tensor([1j, 2j, 3j], device=device)
    z[z.real > 100] = 0
    a = (a + 1j) * 2j
    a[1] = 3
    a[:, 0] = [1j, 2j, 3j]
    np.testing.assert_allclose(z.numpy(), a, rtol=1e-6)
    with pytest.raises(ShapeError, match="the result is complex64"):
        ph.zeros(3, device=device).add_(1j)


def test_gradients_are_those_of_real_and_imaginary_parts() -> None:
    x = ph.tensor(np.random.default_rng(0).uniform(0.5, 1.5, (3, 2)), requires_grad=True)

    def function(x: Any) -> Any:
        z = ph.view_as_complex(x)
        return ph.view_as_real((z * z.conj() + z.exp() / (z + 2j)).sqrt() + z.prod()), z.abs()

    assert gradcheck(function, [x])
    assert gradgradcheck(function, [x])


def test_gradients_follow_pytorchs_convention(device: ph.Device) -> None:
    z = ph.tensor([1 + 2j, 3 - 1j], device=device, requires_grad=True)
    (z.abs() ** 2).sum().backward()
    assert z.grad is not None
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy(), rtol=1e-6)
    (g,) = ph.grad(z * z, z, ph.tensor([1j, 1.0], device=device))
    assert g is not None
    np.testing.assert_allclose(g.numpy(), (2 * z.detach().numpy()).conj() * np.array([1j, 1]), rtol=1e-6)
    with pytest.raises(AutogradError, match="the output is complex64; expected a real one"):
        (z * z).sum().backward()


def test_a_leaf_does_not_make_others_require_gradients() -> None:
    x = ph.ones(2, device="numpy")
    z = ph.complex(x, x).requires_grad_()
    assert z.requires_grad
    assert z.is_leaf
    assert not x.requires_grad


def test_captured_steps_take_and_return_complex_tensors(device: ph.Device) -> None:
    @ph.jit
    def step(z: ph.Tensor, x: ph.Tensor) -> Any:
        return {"product": z * z + x, "sizes": z.abs()}

    z, x = ph.tensor(numbers(4), device=device), ph.ones(4, device=device)
    for k in range(3):
        out = step(z, x * k)
        np.testing.assert_allclose(out["product"].numpy(), numbers(4) ** 2 + k, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out["sizes"].numpy(), np.abs(numbers(4)), rtol=1e-6)


def test_vmap_takes_complex_tensors() -> None:
    a = numbers(5, 3)
    got = ph.vmap(lambda z: z * z.conj().sum())(ph.tensor(a, device="numpy"))
    np.testing.assert_allclose(got.numpy(), a * a.conj().sum(1, keepdims=True), rtol=1e-5)


def test_values_on_the_host() -> None:
    z = ph.tensor([[1 + 2j]], device="numpy")
    assert z.dtype is ph.complex64
    assert z.item() == 1 + 2j
    assert complex(z) == 1 + 2j
    assert z.tolist() == [[1 + 2j]]
    assert repr(z) == "tensor([[1.+2.j]], dtype=polyhal.complex64, device='numpy')"
    assert ph.full((2,), 1j, device="numpy").tolist() == [1j, 1j]
    assert ph.zeros(2, dtype=ph.complex128, device="numpy").dtype is ph.complex128


def test_what_complex_numbers_do_not_have_is_refused() -> None:
    z = ph.tensor([1j], device="numpy")
    with pytest.raises(UnsupportedDTypeError, match=r"\[less\] got complex numbers; expected a real dtype"):
        z < z  # noqa: B015
    with pytest.raises(UnsupportedDTypeError, match="float32 or float64, one for both parts"):
        ph.complex(ph.ones(2, dtype=ph.float16, device="numpy"), ph.ones(2, dtype=ph.float16, device="numpy"))
    with pytest.raises(UnsupportedDTypeError, match="drops their imaginary part; expected a complex dtype or bool"):
        z.float()
    with pytest.raises(TypeError, match="complex numbers as float32"):
        ph.tensor([1j], dtype=ph.float32, device="numpy")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("exp", complex(np.inf, 0), complex(np.inf, 0)),
        ("exp", complex(-np.inf, 0), 0),
        ("exp", complex(-np.inf, np.inf), 0),
        ("exp", complex(-np.inf, np.nan), 0),
        ("sinh", complex(np.inf, 0), complex(np.inf, 0)),
        ("cosh", complex(np.inf, 0), complex(np.inf, 0)),
        ("cosh", complex(-np.inf, 0), complex(np.inf, 0)),
        ("sin", complex(0, np.inf), complex(0, np.inf)),
        ("cos", complex(0, np.inf), complex(np.inf, 0)),
    ],
)
def test_functions_of_infinities_on_an_axis_stay_on_one(
    device: Any, name: str, value: complex, expected: complex
) -> None:
    """The values are those of the Array API standard."""
    got = getattr(ph, name)(ph.tensor(np.complex64([value]), device=device)).numpy()[0]
    assert (got.real, got.imag) == (complex(expected).real, complex(expected).imag)


def test_the_gradient_of_exp_on_the_real_axis(device: Any) -> None:
    x = ph.tensor(np.complex64([2.0]), device=device, requires_grad=True)
    ph.exp(x).imag.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1j * np.exp(2.0)], rtol=1e-5)


def test_a_hook_of_absolute_values_runs_once_in_a_second_gradient(device: ph.Device) -> None:
    def gradients(library: Any, x: Any) -> Any:
        size = abs(library.complex(x, x * 2))
        size.register_hook(lambda g: g * 0.5)
        (first,) = library.autograd.grad((size * size * size).sum(), x, create_graph=True)
        first.sum().backward()
        return x.grad

    values = [1.0, -0.5, 0.0]
    ours = gradients(ph, ph.tensor(values, device=device, requires_grad=True))
    theirs = gradients(torch, torch.tensor(values, dtype=torch.float64, requires_grad=True))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
