"""Special functions in float64 compared with SciPy's, at ordinary and at extreme arguments; the kit compares devices with
these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import special
from polyhal.hal.device import Device
from polyhal.hal.ops import OPS

scipy_special = pytest.importorskip("scipy.special", reason="SciPy is a development dependency")
pytestmark = pytest.mark.slow
_EXTREMES = np.array([0.0, 1.0, -1.0, math.inf, math.nan, 1e-30, 0.5, 1.5, 2.0, 3.0, 8.0, 1e10])
_ENDS = np.array([0.0, 1.0, 1e-300, 1e-10])


def close(actual: Any, expected: Any, relative: float, absolute: float = 0.0) -> None:
    np.testing.assert_allclose(actual, expected, rtol=relative, atol=absolute, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "scipy_name", "points", "relative"),
    [
        ("erfc", "erfc", np.linspace(-5, 26, 999), 2e-13),
        ("erfcx", "erfcx", np.linspace(-20, 60, 999), 2e-13),
        ("ndtr", "ndtr", np.linspace(-30, 8, 999), 2e-13),
        ("log_ndtr", "log_ndtr", np.linspace(-100, 8, 999), 1e-14),
        ("erfinv", "erfinv", np.concatenate([np.linspace(-1, 1, 999), _EXTREMES]), 1e-14),
        ("ndtri", "ndtri", np.concatenate([np.linspace(0, 1, 999), _ENDS]), 1e-14),
        ("lgamma", "gammaln", np.concatenate([np.linspace(-8, 30, 998), _EXTREMES]), 1e-12),
        ("digamma", "digamma", np.concatenate([np.linspace(-8.01, 30, 998), _EXTREMES[1:]]), 1e-10),
        ("entr", "entr", np.concatenate([np.linspace(-1, 30, 98), _EXTREMES]), 1e-14),
        ("i0e", "i0e", np.concatenate([np.linspace(-80, 80, 999), [0.0, 1e-8, 1e5]]), 1e-14),
        ("i1e", "i1e", np.concatenate([np.linspace(-80, 80, 999), [0.0, 1e-8, 1e5]]), 1e-14),
        ("scaled_modified_bessel_k0", "k0e", np.concatenate([np.linspace(1e-3, 60, 999), [1e-10, 1e5]]), 1e-14),
        ("scaled_modified_bessel_k1", "k1e", np.concatenate([np.linspace(1e-3, 60, 999), [1e-10, 1e5]]), 1e-14),
    ],
)
def test_a_function_of_one_argument_is_right_to_float64(
    name: str, scipy_name: str, points: Any, relative: float
) -> None:
    with np.errstate(all="ignore"):
        close(OPS[name].reference(points), getattr(scipy_special, scipy_name)(points), relative, 1e-300)


@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_oscillating_bessel_functions_are_right_to_the_amplitude(name: str) -> None:
    points = np.concatenate([np.linspace(0.05, 100, 1999), [1e3]])
    close(OPS[f"bessel_{name}"].reference(points), getattr(scipy_special, name)(points), 1e-13, 1e-13)


def test_the_airy_function_is_right_to_its_amplitude() -> None:
    points = np.concatenate([np.linspace(-100, 30, 1999), [0.0, -9.0, 2.0]])
    expected = scipy_special.airy(points)[0]
    close(OPS["airy_ai"].reference(points[points >= 0]), expected[points >= 0], 1e-12, 1e-300)
    close(OPS["airy_ai"].reference(points), expected, 1e-12, 1e-12)
    assert np.array_equal(OPS["airy_ai"].reference(np.array([np.inf, -np.inf])), [0.0, 0.0])


def test_the_spherical_bessel_function_vanishes_at_infinity(device: polyhal.Device) -> None:
    x = polyhal.tensor([0.0, math.inf, -math.inf, math.nan, 2.0], device=device)
    assert np.allclose(
        polyhal.special.spherical_bessel_j0(x).numpy(), [1, 0, 0, math.nan, math.sin(2) / 2], equal_nan=True
    )


@pytest.mark.parametrize(("name", "scipy_name"), [("igamma", "gammainc"), ("igammac", "gammaincc")])
def test_incomplete_gamma_functions(name: str, scipy_name: str) -> None:
    a, x = np.meshgrid(np.linspace(0.05, 60, 40), np.linspace(0.05, 80, 40))
    close(OPS[name].reference(a, x), getattr(scipy_special, scipy_name)(a, x), 1e-12, 1e-290)
    a, x = np.meshgrid([0.0, 1.0, -1.0, math.inf, math.nan], [0.0, 1.0, -1.0, math.inf, math.nan])
    close(OPS[name].reference(a, x), getattr(scipy_special, scipy_name)(a, x), 1e-14)


def test_the_zeta_function_and_derivatives_of_digamma() -> None:
    x, q = np.meshgrid(np.linspace(1.01, 20, 30), np.linspace(0.1, 30, 30))
    close(OPS["zeta"].reference(x, q), scipy_special.zeta(x, q), 1e-14)
    points = np.linspace(0.1, 30, 299)
    for n in (1, 2, 5):
        close(OPS["polygamma_at"].reference(points, n=n), scipy_special.polygamma(n, points), 1e-14)


def test_products_with_logarithms_vanish_with_their_factor() -> None:
    values = np.array([0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5])
    x, y = np.meshgrid(values, values)
    close(OPS["xlogy"].reference(x, y), scipy_special.xlogy(x, y), 0.0)
    close(OPS["xlog1py"].reference(x, y), scipy_special.xlog1py(x, y), 0.0)


def test_names_of_both_libraries_are_there(device: Device) -> None:
    x = polyhal.tensor([0.5, 2.5], device=device)
    assert special.gammaln(x).tolist() == polyhal.lgamma(x).tolist()
    assert special.expit(x).tolist() == polyhal.sigmoid(x).tolist()
    assert special.psi(x).tolist() == special.polygamma(0, x).tolist()
    assert special.hermite_polynomial_h(x, 2).tolist() == pytest.approx([-1.0, 23.0])
    assert set(special.__all__) <= {*dir(special)}
    with pytest.raises(AttributeError, match="no attribute 'gama'"):
        _ = special.gama
