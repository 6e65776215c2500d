"""Factors, solutions and determinants of batches of small matrices: backward errors, pivots, failures and layouts."""

from __future__ import annotations

from typing import Any

import hard_matrices
import matrix_residuals
import numpy as np
import pytest
from native_ops import check, lower, run, upload

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined

pytestmark = pytest.mark.kernels_of("lu_factors", "cholesky_factor", "solve_system", "qr_factors")

every_kind = pytest.mark.parametrize("kind", hard_matrices.KINDS)


@every_kind
@pytest.mark.parametrize("shape", [(3, 7, 7), (2, 1, 40, 33), (2, 5, 8)], ids=str)
def test_lu_factors(device: Any, rng: Any, kind: str, shape: tuple[int, ...]) -> None:
    a = hard_matrices.draw(rng, kind, shape)
    packed, pivots, info = run(device, "lu_factors", [hard_matrices.strided(a)], check=False)
    assert not info.any()
    assert matrix_residuals.of_lu(a, packed, pivots) < matrix_residuals.LIMIT


def test_lu_factors_of_singular_matrices_name_the_first_zero_pivot(device: Any) -> None:
    a = np.array([[[0, 2], [0, 4]], [[1, 2], [2, 4]], [[1, 2], [4, 4]]], np.float32)
    check(device, "lu_factors", [a], ulps=0, check=False)
    check(device, "lu_factors", [a], ulps=0, check=False, pivot=False)
    *_, info = run(device, "solve_system", [a, a], check=False)
    assert info.tolist() == [1, 2, 0]


@every_kind
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n", [6, 37])
def test_cholesky_factors_read_one_triangle(device: Any, rng: Any, kind: str, upper: bool, n: int) -> None:
    a = hard_matrices.positive_definite(rng, kind, (2, n, n))
    half = np.where(np.tri(n, k=-1, dtype=bool) if upper else ~np.tri(n, dtype=bool), np.float32(np.nan), a)
    factor, info = run(device, "cholesky_factor", [hard_matrices.strided(half)], upper=upper, check=False)
    assert not info.any()
    assert matrix_residuals.of_cholesky(a, factor, upper) < matrix_residuals.LIMIT


def test_cholesky_factors_of_other_matrices_are_zero(device: Any) -> None:
    a = np.stack([np.diag([4, -1, 1]), np.diag([4, 1, np.nan]), np.eye(3), np.zeros((3, 3))]).astype(np.float32)
    factor, info = run(device, "cholesky_factor", [a], check=False)
    assert info.tolist() == [2, 3, 0, 1]
    assert not factor[[0, 1, 3]].any()
    np.testing.assert_array_equal(factor[2], np.eye(3))


@every_kind
@pytest.mark.parametrize(("n", "columns"), [(5, 1), (16, 3), (40, 40)], ids=str)
def test_solutions(device: Any, rng: Any, kind: str, n: int, columns: int) -> None:
    a, b = hard_matrices.draw(rng, kind, (3, n, n)), rng.normal(size=(n, columns)).astype(np.float32)
    x, info = run(device, "solve_system", [hard_matrices.strided(a), b], check=False)
    assert not info.any()
    # The bound of partial pivoting contains the growth of pivots, here below 8 (theorem 9.5).
    assert matrix_residuals.of_solution(a, x, b) < 8 * matrix_residuals.LIMIT


def test_inverses(device: Any, rng: Any) -> None:
    a = rng.normal(size=(2, 20, 20)).astype(np.float32)
    inverse, _ = run(device, "inverse_matrix", [hard_matrices.strided(a)], check=False)
    one = np.broadcast_to(np.eye(20, dtype=np.float32), a.shape)
    assert matrix_residuals.of_solution(a, inverse, one) < matrix_residuals.LIMIT


@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("n", "columns"), [(1, 1), (7, 1), (33, 70)], ids=str)
def test_triangular_solutions(device: Any, rng: Any, n: int, columns: int, upper: bool, unitriangular: bool) -> None:
    full = rng.uniform(-1, 1, (2, n, n)) / n + 2 * np.eye(n) * (not unitriangular)
    a, b = full.astype(np.float32), rng.normal(size=(3, 2, n, columns)).astype(np.float32)
    (x,) = run(device, "solve_triangular_left", [hard_matrices.strided(a), b], upper=upper, unitriangular=unitriangular)
    triangle = (np.triu if upper else np.tril)(a, (1 if upper else -1) if unitriangular else 0)
    triangle = triangle + np.eye(n, dtype=np.float32) * unitriangular
    assert matrix_residuals.of_solution(triangle, x, b) < matrix_residuals.LIMIT


@every_kind
@pytest.mark.parametrize(("shape", "mode"), [((2, 9, 5), "complete"), ((2, 5, 9), "reduced"), ((2, 40, 40), "reduced")])
def test_qr_factors(device: Any, rng: Any, kind: str, shape: tuple[int, ...], mode: str) -> None:
    a = hard_matrices.draw(rng, kind, shape)
    q, r = run(device, "qr_factors", [hard_matrices.strided(a)], mode=mode)
    assert matrix_residuals.of_qr(a, q, r) < matrix_residuals.LIMIT
    np.testing.assert_array_equal(
        np.sign(np.diagonal(r, 0, -2, -1)), np.sign(np.diagonal(np.linalg.qr(a)[1], 0, -2, -1))
    )


def test_reflections_of_columns_of_zeros_are_identities(device: Any) -> None:
    a = np.array([[0, 1], [0, 2], [0, 0]], np.float32)
    check(device, "householder_factors", [a], ulps=4)
    check(device, "qr_factors", [a], ulps=4, mode="complete")


def test_determinants(device: Any, rng: Any) -> None:
    a = rng.normal(size=(4, 9, 9))
    a[1, 3] = 0
    a[2, :, 0] = np.nan
    check(device, "determinant", [a], ulps=64)
    check(device, "log_determinant", [a], ulps=64)


def test_factors_in_float64(device: Any, rng: Any) -> None:
    if not device.stores(dtypes.float64):
        pytest.skip("the device does not store float64")
    a = hard_matrices.draw(rng, "graded", (2, 12, 12), np.float64)
    packed, pivots, _ = run(device, "lu_factors", [a], check=False)
    assert matrix_residuals.of_lu(a, packed, pivots) < matrix_residuals.LIMIT
    assert matrix_residuals.of_qr(a, *run(device, "qr_factors", [a])) < matrix_residuals.LIMIT


def test_ops_that_raise_errors_are_programs_with_a_check(device: Any) -> None:
    answer, _ = lower(device, "solve_system", [upload(device, np.eye(2, dtype=np.float32))] * 2, {"check": True})
    assert isinstance(answer, Declined)


def test_row_orders_of_long_permutations(device: Any, rng: Any) -> None:
    pivots = np.stack([np.arange(300) + rng.integers(0, 1000 - 299, 300) + 1 for _ in range(2)]).astype(np.int32)
    (order,) = run(device, "row_order", [pivots], rows=1000)
    np.testing.assert_array_equal(order, OPS["row_order"].reference(pivots, rows=1000))
