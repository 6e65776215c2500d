"""Groups of several work-items, and spectra: kernels of linear algebra that only GPUs use, on any device."""

from __future__ import annotations

from typing import Any

import hard_matrices
import matrix_residuals
import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import check, run

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, treated as a GPU with 48 KiB of local memory."""
    runtime = device.backend.runtime
    monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, static_local_memory=48 << 10))
    return device


@pytest.mark.parametrize(
    "shape", [(2, 40, 33), (3, 100, 20), (1, 70, 32), (2, 66, 1), (2, 100, 130), (130, 70), (1, 16400, 3)], ids=str
)
@pytest.mark.parametrize("kind", ["normal", "graded"])
def test_lu_factors(gpu: Any, rng: Any, kind: str, shape: tuple[int, ...]) -> None:
    a = hard_matrices.draw(rng, kind, shape)
    packed, pivots, info = run(gpu, "lu_factors", [a], check=False)
    assert not info.any()
    assert matrix_residuals.of_lu(a, packed, pivots) < matrix_residuals.LIMIT


def test_panels_exchange_the_rows_that_the_reference_does(gpu: Any, rng: Any) -> None:
    """The elements are small integers, for which the elimination of a few columns is exact: ties and zeros are frequent."""
    a = rng.integers(-2, 3, (2, 90, 3)).astype(np.float32)
    a[0, :, 1] = a[0, :, 0]
    for pivot in (True, False):
        check(gpu, "lu_factors", [a], ulps=4, check=False, pivot=pivot)
    a[1, 50, 0] = np.nan
    _, pivots, _ = run(gpu, "lu_factors", [a], check=False)
    assert pivots[1, 0] == 51


@pytest.mark.parametrize(
    "shape", [(2, 40, 33), (3, 100, 20), (2, 66, 1), (1, 100, 130), (1, 130, 70), (1, 4100, 3)], ids=str
)
@pytest.mark.parametrize("kind", ["normal", "graded", "tiny"])
def test_reflections(gpu: Any, rng: Any, kind: str, shape: tuple[int, ...]) -> None:
    a = hard_matrices.draw(rng, kind, shape)
    packed, tau = run(gpu, "householder_factors", [a])
    k = min(shape[1:])
    q = np.broadcast_to(np.eye(shape[1], k), (shape[0], shape[1], k)).copy()
    for j in reversed(range(k)):
        v = np.tril(packed.astype(np.float64), -1)[..., j : j + 1]
        v[:, j] = 1
        q -= v * tau[:, None, j : j + 1].astype(np.float64) @ (np.swapaxes(v, -2, -1) @ q)
    assert matrix_residuals.of_qr(a, q.astype(np.float32), np.triu(packed[:, :k])) < matrix_residuals.LIMIT


def test_solutions(gpu: Any, rng: Any) -> None:
    a, b = rng.normal(size=(3, 40, 40)).astype(np.float32), rng.normal(size=(3, 40, 5)).astype(np.float32)
    x, _ = run(gpu, "solve_system", [a, b], check=False)
    assert matrix_residuals.of_solution(a, x, b) < 8 * matrix_residuals.LIMIT
    inverse, _ = run(gpu, "inverse_matrix", [a], check=False)
    one = np.broadcast_to(np.eye(40, dtype=np.float32), a.shape)
    assert matrix_residuals.of_solution(a, inverse, one) < 8 * matrix_residuals.LIMIT


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("columns", [1, 9, 70])
def test_triangular_solutions(gpu: Any, rng: Any, columns: int, upper: bool) -> None:
    a = (rng.uniform(-1, 1, (2, 40, 40)) / 40 + 2 * np.eye(40)).astype(np.float32)
    b = rng.normal(size=(40, columns)).astype(np.float32)
    (x,) = run(gpu, "solve_triangular_left", [a, b], upper=upper)
    assert matrix_residuals.of_solution((np.triu if upper else np.tril)(a), x, b) < matrix_residuals.LIMIT


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize(("n", "columns"), [(65, 3), (200, 11)], ids=str)
def test_solutions_by_inverses_of_diagonal_blocks(gpu: Any, rng: Any, n: int, columns: int, upper: bool) -> None:
    full = (rng.uniform(-1, 1, (2, n, n)) / n + 2 * np.eye(n)).astype(np.float32)
    b = rng.normal(size=(3, 1, n, columns)).astype(np.float32)
    for unit in (False, True):
        (x,) = run(gpu, "solve_triangular_left", [hard_matrices.strided(full), b], upper=upper, unitriangular=unit)
        triangle = (np.triu if upper else np.tril)(full, (1 if upper else -1) if unit else 0)
        triangle = triangle + np.eye(n, dtype=np.float32) * unit
        assert matrix_residuals.of_solution(triangle, x, b) < matrix_residuals.LIMIT


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", hard_matrices.KINDS)
@pytest.mark.parametrize("n", [65, 200])
def test_cholesky_factors_by_panels(gpu: Any, rng: Any, n: int, kind: str, upper: bool) -> None:
    a = hard_matrices.positive_definite(rng, kind, (2, n, n))
    half = np.where(np.tri(n, k=-1, dtype=bool) if upper else ~np.tri(n, dtype=bool), np.float32(np.nan), a)
    factor, info = run(gpu, "cholesky_factor", [hard_matrices.strided(half)], upper=upper, check=False)
    assert not info.any()
    assert matrix_residuals.of_cholesky(a, factor, upper) < matrix_residuals.LIMIT


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan])
@pytest.mark.parametrize("minor", [3, 64, 90, 130])
def test_panels_name_the_first_minor_that_is_not_positive(gpu: Any, minor: int, value: float) -> None:
    a = np.stack([np.eye(130), np.eye(130)]).astype(np.float32)
    a[1, minor - 1, minor - 1] = value
    a[1, 129, 129] = -1
    factor, info = run(gpu, "cholesky_factor", [a], check=False, start=7)
    assert info.tolist() == [0, 7 + minor]
    assert not factor[1].any()
    np.testing.assert_array_equal(factor[0], np.eye(130))


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors(gpu: Any, rng: Any, upper: bool) -> None:
    a = hard_matrices.positive_definite(rng, "graded", (2, 40, 40))
    a[1, 30, 30] = -1
    factor, info = run(gpu, "cholesky_factor", [a], upper=upper, check=False)
    assert info.tolist() == [0, 31]
    assert not factor[1].any()
    assert matrix_residuals.of_cholesky(a[:1], factor[:1], upper) < matrix_residuals.LIMIT


def test_matrices_whose_second_operand_exceeds_local_memory(gpu: Any, rng: Any) -> None:
    """In float64 a matrix of 64 rows leaves no room for Q or for right sides: they are in global memory."""
    if not gpu.stores(dtypes.float64):
        pytest.skip("the device does not store float64")
    a, b = rng.normal(size=(2, 50, 50)), rng.normal(size=(2, 50, 50))
    x, _ = run(gpu, "solve_system", [a, b], check=False)
    assert matrix_residuals.of_solution(a, x, b) < 8 * matrix_residuals.LIMIT
    assert matrix_residuals.of_qr(a, *run(gpu, "qr_factors", [a])) < matrix_residuals.LIMIT
    (x,) = run(gpu, "solve_triangular_left", [np.tril(a) + 9 * np.eye(50), b], upper=False)
    assert matrix_residuals.of_solution(np.tril(a) + 9 * np.eye(50), x, b) < matrix_residuals.LIMIT


@pytest.mark.parametrize("rows", [300, 20000])
def test_orders_of_rows(gpu: Any, rng: Any, rows: int) -> None:
    pivots = (np.arange(280) + rng.integers(0, rows - 280, 280) + 1).astype(np.int32)
    (order,) = run(gpu, "row_order", [pivots], rows=rows)
    np.testing.assert_array_equal(order, OPS["row_order"].reference(pivots, rows=rows))


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize(("n", "kind"), [(1, "normal"), (7, "graded"), (16, "tiny"), (33, "normal")], ids=str)
def test_eigenvalues_and_vectors(gpu: Any, rng: Any, n: int, kind: str, uplo: str) -> None:
    a = hard_matrices.draw(rng, kind, (2, n, n))
    a = a + np.swapaxes(a, -2, -1)
    half = np.where(np.tri(n, k=-1, dtype=bool) if uplo == "U" else ~np.tri(n, dtype=bool), np.float32(np.nan), a)
    values, vectors, info = run(gpu, "symmetric_jacobi", [hard_matrices.strided(half)], uplo=uplo)
    assert not info.any()
    assert (np.diff(values) >= 0).all()
    assert matrix_residuals.of_spectrum(a, values, vectors) < matrix_residuals.SPECTRUM_LIMIT
    only, _, _ = run(gpu, "symmetric_jacobi", [half], uplo=uplo, vectors=False)
    np.testing.assert_array_equal(only, values)


SINGULAR = [
    (5, 3, "normal"),
    (3, 8, "tiny"),
    (20, 20, "ill-conditioned"),
    (40, 33, "graded"),
    (4, 4, "zero"),
    (9, 6, "rank 2"),
]


@pytest.mark.parametrize("full_matrices", [False, True])
@pytest.mark.parametrize(("m", "n", "kind"), SINGULAR, ids=str)
def test_singular_values_and_vectors(gpu: Any, rng: Any, m: int, n: int, kind: str, full_matrices: bool) -> None:
    a = hard_matrices.draw(rng, kind, (2, m, n))
    a = a * np.float32(kind != "zero")
    if kind == "rank 2":
        a = (rng.normal(size=(2, m, 2)) @ rng.normal(size=(2, 2, n))).astype(np.float32)
    u, s, vh, info = run(gpu, "singular_jacobi", [hard_matrices.strided(a)], full_matrices=full_matrices)
    assert not info.any()
    assert (np.diff(s) <= 0).all()
    assert matrix_residuals.of_singular_factors(a, u, s, vh) < matrix_residuals.SPECTRUM_LIMIT
    (_, only, _, _) = run(gpu, "singular_jacobi", [a], vectors=False)
    np.testing.assert_array_equal(only, s)


def test_spectra_of_elements_that_are_not_finite(gpu: Any) -> None:
    a = np.stack([np.eye(3), np.full((3, 3), np.nan), np.diag([1, np.inf, 1])]).astype(np.float32)
    values, _, info = run(gpu, "symmetric_jacobi", [a])
    assert info.tolist() == [0, 1, 1]
    assert np.isnan(values[1:]).all()
    _, values, _, info = run(gpu, "singular_jacobi", [a])
    assert info.tolist() == [0, 1, 1]
    assert values[0].tolist() == [1, 1, 1]
