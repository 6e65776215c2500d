"""Elementary functions over the range of float32 on all APIs, compared with NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal
from polyhal.hal.device import Device

_SMALLEST = np.float32(1.1754944e-38)


_NATIVE = [name for name in PARITY_DEVICES if name != "numpy:contiguous_only"]
"""Devices that compute these functions themselves; others compose them, `exp2(x)` of `exp(x * log(2))`."""


@pytest.fixture(params=_NATIVE)
def native_device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


@pytest.fixture
def device(native_device: Device) -> Device:
    return native_device


def _units(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return errors in units in the last place of float32; subnormal results use the unit of the smallest normal number."""
    return np.asarray(np.abs(got - exact) / np.spacing(np.maximum(np.abs(exact).astype(np.float32), _SMALLEST)))


def _angles() -> np.ndarray:
    """Return angles of all magnitudes, near multiples of pi/2, and the worst case of float32, 16367173 * 2**72."""
    rng = np.random.default_rng(4)
    sizes = np.concatenate(
        [
            2.0 ** rng.uniform(-30, 128, 4000),
            rng.uniform(0, 1e5, 2000),
            np.arange(1, 3000) * np.pi / 2,
            [8192, 16367173 * 2.0**72, 3.4028235e38, 0],
        ]
    ).astype(np.float32)
    return np.concatenate([sizes, -sizes])


@pytest.mark.parametrize(
    ("name", "units"),
    # The reduced angle is within 1.5 units, which sine and cosine do not magnify and the tangent does by pi/2 at most; each
    # polynomial adds 1.5 and a quotient 1. OpenCL C allows 4 and 5.
    [("sin", 4.0), ("cos", 4.0), ("tan", 6.5)],
)
def test_periodic_functions_are_accurate_for_angles_of_any_size(device: Device, name: str, units: float) -> None:
    x = _angles()
    got = getattr(polyhal, name)(polyhal.tensor(x, device=device)).numpy()
    exact = getattr(np, name)(x.astype(np.float64))
    assert _units(got, exact).max() <= units


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_periodic_functions_of_infinity_are_nan(device: Device, name: str) -> None:
    got = getattr(polyhal, name)(polyhal.tensor([np.inf, -np.inf, np.nan], dtype="float32", device=device)).numpy()
    assert np.isnan(got).all()


def test_powers_are_accurate_up_to_the_largest_float(device: Device) -> None:
    rng = np.random.default_rng(5)
    x = (2.0 ** rng.uniform(-126, 128, 6000)).astype(np.float32)
    x[:2000] = rng.uniform(0.7, 1.4, 2000)  # bases near 1, with large exponents
    x = x[x != 1]
    y = (rng.uniform(-126, 127.99, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    got = polyhal.pow(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device)).numpy()
    exact = x.astype(np.float64) ** y.astype(np.float64)
    inside = exact < np.finfo(np.float32).max
    assert _units(got, exact)[inside].max() <= 16.0  # OpenCL C's bound for pow


_RANGES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "exp": (np.exp, 3), "exp2": (np.exp2, 3), "expm1": (np.expm1, 3), "log": (np.log, 3), "log2": (np.log2, 3),
    "log10": (np.log10, 3), "log1p": (np.log1p, 2), "sinh": (np.sinh, 4), "cosh": (np.cosh, 4), "tanh": (np.tanh, 5),
    "asinh": (np.arcsinh, 4), "acosh": (np.arccosh, 4), "atanh": (np.arctanh, 5), "asin": (np.arcsin, 4),
    "acos": (np.arccos, 4), "atan": (np.arctan, 5), "sqrt": (np.sqrt, 3),
}  # fmt: skip
"""Functions, and the units in the last place that OpenCL C's full profile allows."""


@pytest.mark.parametrize("name", _RANGES)
def test_functions_are_accurate_over_the_range_of_float(device: Device, name: str) -> None:
    reference, units = _RANGES[name]
    rng = np.random.default_rng(6)
    sizes = np.concatenate([2.0 ** rng.uniform(-126, 128, 3000), rng.uniform(0, 100, 500), [1, 3.4028235e38]])
    x = np.concatenate([sizes, -sizes]).astype(np.float32)
    got = getattr(polyhal, name)(polyhal.tensor(x, device=device)).numpy()
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    assert _units(got[finite], exact[finite]).max() <= units


def _dividends() -> tuple[np.ndarray, np.ndarray]:
    """Return operands of all magnitudes with quotients below 2**60, where some round up to an integer."""
    rng = np.random.default_rng(7)
    y = np.concatenate([2.0 ** rng.uniform(-60, 60, 3000), np.repeat(0.1, 300), rng.uniform(0.05, 4, 2000)]).astype(
        np.float32
    )
    x = (y.astype(np.float64) * 2.0 ** rng.uniform(-40, 60, y.size)).astype(np.float32)
    x[3000:3300] = np.arange(300) * np.float32(0.1)
    x[3300:] = rng.uniform(-40, 40, 2000)
    special = np.float32([0, 1, -1, 5, -5, np.inf, -np.inf, np.nan, 2.5])
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    signs = rng.choice([-1.0, 1.0], (2, y.size)).astype(np.float32)
    return np.concatenate([x * signs[0], [1e8, 1], pairs[0]]), np.concatenate([y * signs[1], [3, 0.1], pairs[1]])


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
def test_quotients_and_remainders_equal_numpys(device: Device, name: str) -> None:
    """Results are exact, except for quotients beyond 2**24, where dividend minus remainder and its quotient are rounded."""
    x, y = (v.astype(np.float32) for v in _dividends())
    got = getattr(polyhal, name)(polyhal.tensor(x, device=device), polyhal.tensor(y, device=device)).numpy()
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
        rounded = (name == "floor_divide") & (np.abs(expected) > 2**24) & np.isfinite(expected)
    np.testing.assert_array_equal(got[~rounded], expected[~rounded])
    np.testing.assert_allclose(got[rounded], expected[rounded], rtol=2.0**-22)


def test_a_number_divides_and_is_divided_as_in_python(device: Device) -> None:
    tenth = polyhal.tensor([0.1], dtype="float32", device=device)
    assert (1 // tenth).item() == 9.0
    assert (1 % tenth).item() == np.remainder(np.float32(1), np.float32(0.1))
    assert (-polyhal.ones_like(tenth) // float("inf")).item() == -1.0


@pytest.mark.parametrize("name", ["cumsum", "sum"])
def test_a_million_tenths_sum_to_a_hundred_thousand(name: str) -> None:
    x = polyhal.tensor(np.full((1_000_000, 2), 0.1, np.float32), device="numpy")
    total = polyhal.cumsum(x, 0)[-1] if name == "cumsum" else polyhal.sum(x, 0)
    np.testing.assert_allclose(total.numpy(), 1e6 * np.float64(np.float32(0.1)), rtol=2.0**-23)


def test_products_and_means_of_many_elements_are_accurate() -> None:
    values = np.random.default_rng(8).uniform(0.9999, 1.0001, (300_000, 2)).astype(np.float32)
    x = polyhal.tensor(values, device="numpy")
    exact = values.astype(np.float64)
    np.testing.assert_allclose(polyhal.prod(x, 0).numpy(), exact.prod(0), rtol=2.0**-23)
    np.testing.assert_allclose(polyhal.cumprod(x, 0)[-1].numpy(), exact.prod(0), rtol=2.0**-23)
    np.testing.assert_allclose(polyhal.mean(x, 0).numpy(), exact.mean(0), rtol=2.0**-23)
    np.testing.assert_allclose(
        polyhal.var(x + 1000, 0).numpy(), (x + 1000).numpy().astype(np.float64).var(0), rtol=1e-5
    )
    steady = polyhal.tensor(np.zeros(300_000, np.float32), device="numpy")
    np.testing.assert_allclose(polyhal.logcumsumexp(steady, 0)[-1].numpy(), np.log(300_000), rtol=2.0**-20)
