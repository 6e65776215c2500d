"""Elementary functions over the whole range of float32, against NumPy in float64, on every API."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal
from polyhal.hal.device import Device

_SMALLEST = np.float32(1.1754944e-38)


@pytest.fixture(params=PARITY_DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


def _units(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units in the last place of float32; subnormal results count in those of the smallest normal number."""
    return np.asarray(np.abs(got - exact) / np.spacing(np.maximum(np.abs(exact).astype(np.float32), _SMALLEST)))


def _angles() -> np.ndarray:
    """Angles of all sizes, those closest to multiples of pi/2, and the one that is closest of all, 16367173 * 2**72."""
    rng = np.random.default_rng(4)
    sizes = np.concatenate([
        2.0 ** rng.uniform(-30, 128, 4000), rng.uniform(0, 1e5, 2000), np.arange(1, 3000) * np.pi / 2,
        [8192, 16367173 * 2.0**72, 3.4028235e38, 0],
    ]).astype(np.float32)  # fmt: skip
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
    x[:2000] = rng.uniform(0.7, 1.4, 2000)  # near 1, where exponents are large
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
