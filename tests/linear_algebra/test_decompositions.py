"""Decompositions compared with NumPy's and PyTorch's: errors, second gradients, edges and captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Tensor, linalg
from polyhal.hal.device import Device
from polyhal.hal.errors import LinAlgError, UnsupportedDTypeError

SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)


def _matrix(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape) + 2 * np.eye(shape[-2], shape[-1])


def _symmetric(x: Any) -> Any:
    return x @ x.transpose(-2, -1)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: linalg.inv(x), r"\[inv\] matrix \(1,\) of the batch is singular: its pivot number 2 is 0"),
        (lambda x: linalg.solve(x, x), r"\[solve\] matrix \(1,\) of the batch is singular"),
        (lambda x: linalg.lu_factor(x), r"\[lu_factor\] matrix \(1,\) of the batch is singular"),
        (
            lambda x: linalg.cholesky(x),
            r"\[cholesky\] matrix \(1,\) .* not positive definite: its leading minor of order 2",
        ),
        (lambda x: linalg.matrix_power(x, -1), "is singular"),
    ],
)
def test_singular_matrices_are_named(function: Callable[[Tensor], object], match: str, device: Device) -> None:
    x = polyhal.tensor(np.stack([np.eye(2, dtype=np.float32), SINGULAR]), device=device)
    with pytest.raises(LinAlgError, match=match):
        function(x)


def test_factors_of_singular_matrices_say_where(device: Device) -> None:
    x = polyhal.tensor(np.stack([np.eye(2, dtype=np.float32), SINGULAR]), device=device)
    assert linalg.inv_ex(x).info.tolist() == [0, 2]
    assert linalg.solve_ex(x, x).info.tolist() == [0, 2]
    assert linalg.lu_factor_ex(x).info.tolist() == [0, 2]
    assert linalg.cholesky_ex(x).info.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", ["int64", "float16", "bool_"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    x = polyhal.ones((2, 2), dtype=getattr(polyhal, dtype), device="numpy")
    with pytest.raises(UnsupportedDTypeError, match=r"expected float32 or float64; cast with .to\(dtype\)"):
        linalg.inv(x)


def test_explain_says_that_and_why_they_run_on_the_host() -> None:
    text = str(polyhal.explain("symmetric_spectrum", "numpy:contiguous_only"))
    assert "on the host" in text
    assert "LAPACK" in text


GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "inv": lambda la, x: la.inv(x),
    "solve": lambda la, x: la.solve(x, x[..., :1] ** 2),
    "cholesky": lambda la, x: la.cholesky(_symmetric(x)),
    "det": lambda la, x: la.det(x),
    "slogdet": lambda la, x: la.slogdet(x)[1],
    "eigh": lambda la, x: (lambda r: r[0] + (r[1] ** 2).sum(-2) * r[1][..., 0, :] ** 2)(la.eigh(_symmetric(x))),
    "eigvalsh": lambda la, x: la.eigvalsh(_symmetric(x), UPLO="U"),
    "svdvals": lambda la, x: la.svdvals(x),
    "svd": lambda la, x: (lambda r: (r[0] * r[1][..., None, :] ** 2) @ r[2])(la.svd(x, full_matrices=False)),
    "qr": lambda la, x: (lambda r: r[0] ** 2 + r[1] ** 2)(la.qr(x)),
    "lu": lambda la, x: (lambda r: r[1] * 2 + r[2] ** 2)(la.lu(x)),
    "pinv": lambda la, x: la.pinv(x),
    "matrix_exp": lambda la, x: la.matrix_exp(x),
    "nuclear": lambda la, x: la.matrix_norm(x, "nuc"),
    "cond": lambda la, x: la.cond(x),
    "householder": lambda la, x: la.householder_product(x, x[..., 0] * 0.1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_first_and_second_gradients_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    values, function = _matrix(2, 3, 3), GRADIENTS[name]
    ours = polyhal.tensor(values, dtype=polyhal.float64, device="numpy", requires_grad=True)
    theirs = torch.tensor(values, requires_grad=True)
    (first,) = polyhal.grad((function(linalg, ours) ** 2).sum(), [ours], create_graph=True)
    (expected,) = torch.autograd.grad((function(torch.linalg, theirs) ** 2).sum(), [theirs], create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), expected.detach().numpy(), rtol=1e-8, atol=1e-8)
    (second,) = polyhal.grad((first * first).sum(), [ours])
    (expected,) = torch.autograd.grad((expected * expected).sum(), [theirs])
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
@pytest.mark.parametrize("name", ["svd", "pinv", "lu", "qr"])
def test_gradients_of_other_shapes_are_pytorchs(name: str, shape: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    functions: dict[str, Callable[[Any, Any], Any]] = {
        **GRADIENTS,
        "lu": lambda la, x: la.lu(x)[1].sum() ** 2 + (la.lu(x)[2] ** 3).sum(),
        "qr": lambda la, x: (la.qr(x)[0] ** 3).sum() + (la.qr(x)[1] ** 2).sum(),
    }
    ours = polyhal.tensor(_matrix(*shape), dtype=polyhal.float64, device="numpy", requires_grad=True)
    theirs = torch.tensor(_matrix(*shape), requires_grad=True)
    (first,) = polyhal.grad((functions[name](linalg, ours) ** 2).sum(), [ours])
    (expected,) = torch.autograd.grad((functions[name](torch.linalg, theirs) ** 2).sum(), [theirs])
    np.testing.assert_allclose(first.numpy(), expected.numpy(), rtol=1e-8, atol=1e-8)


def test_singular_determinants_have_second_derivatives() -> None:
    """det [[a, b], [c, d]] = ad - bc, whose gradient is linear; at the zero matrix, too."""
    for values in (SINGULAR, np.zeros((2, 2))):
        x = polyhal.tensor(values, dtype=polyhal.float64, device="numpy", requires_grad=True)
        (first,) = polyhal.grad(linalg.det(x), [x], create_graph=True)
        (a, b), (c, d) = values
        np.testing.assert_allclose(first.detach().numpy(), [[d, -c], [-b, a]], atol=1e-12)
        (second,) = polyhal.grad(first[0, 0] * 2 + first[0, 1], [x])
        np.testing.assert_allclose(second.numpy(), [[0, 0], [-1, 2]], atol=1e-12)


def test_determinants_of_matrices_with_nan_have_gradients_of_nan(device: Device) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([[[1, np.nan], [2, 3]], [[1, 2], [3, 4]]], np.float32)
    for function in (lambda la, x: la.det(x), lambda la, x: la.slogdet(x)[1], lambda la, x: la.inv(x)):
        ours, theirs = (
            polyhal.tensor(values, device=device, requires_grad=True),
            torch.tensor(values, requires_grad=True),
        )
        function(linalg, ours).sum().backward()
        function(torch.linalg, theirs).sum().backward()
        assert ours.grad is not None
        assert theirs.grad is not None
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5)


def test_power_0_of_complex_matrices_is_the_identity(device: Device) -> None:
    x = polyhal.tensor(np.full((2, 3, 3), 2 - 1j, np.complex64), device=device)
    np.testing.assert_array_equal(polyhal.linalg.matrix_power(x, 0).numpy(), np.broadcast_to(np.eye(3), (2, 3, 3)))


def test_results_that_ignore_an_operand_have_a_gradient_of_zeros(device: Device) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([[1.0, np.inf], [np.nan, 0.0]], np.float32)
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "power 0 of matrices": lambda lib, x: lib.linalg.matrix_power(x, 0),
        "power 0 of elements": lambda lib, x: x**0,
        "addmm without a sum": lambda lib, x: lib.addmm(x, lib.ones_like(x), lib.ones_like(x), beta=0),
        "baddbmm without a sum": lambda lib, x: lib.baddbmm(
            x[None], lib.ones_like(x)[None], lib.ones_like(x)[None], beta=0
        ),
    }
    for name, function in functions.items():
        ours, theirs = (
            polyhal.tensor(values, device=device, requires_grad=True),
            torch.tensor(values, requires_grad=True),
        )
        results = function(polyhal, ours), function(torch, theirs)
        np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), err_msg=name)
        for result in results:
            result.sum().backward()
        assert ours.grad is not None, name
        assert theirs.grad is not None, name
        np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy(), err_msg=name)
    x = polyhal.tensor(values, device=device, requires_grad=True)
    ((linalg.vector_norm(x, 0) + linalg.matrix_power(x, 0).sum()) * np.inf).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0], [0, 0]]


def test_gradients_of_values_need_no_different_values() -> None:
    x = polyhal.tensor(np.eye(3), dtype=polyhal.float64, device="numpy", requires_grad=True)
    (linalg.svd(x).S.sum() + linalg.eigh(x).eigenvalues.sum()).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.eye(3), atol=1e-12)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("upper", [True, False])
def test_large_triangular_systems_are_solved_in_blocks(n: int, upper: bool) -> None:
    rng = np.random.default_rng(n)
    full = rng.uniform(-1, 1, (n, n)) / n + np.eye(n)
    a, b = (np.triu if upper else np.tril)(full), rng.uniform(-1, 1, (n, 3))
    out = linalg.solve_triangular(polyhal.tensor(full, device="numpy"), polyhal.tensor(b, device="numpy"), upper=upper)
    np.testing.assert_allclose(a @ out.numpy(), b, atol=1e-6)


@pytest.mark.parametrize("shape", [(100, 100), (70, 40), (40, 70), (2, 65, 65)])
def test_large_matrices_are_factored_in_blocks(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    p, lower, upper = linalg.lu(polyhal.tensor(x, dtype=polyhal.float64, device="numpy"))
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x, atol=1e-12)
    assert np.abs(lower.numpy()).max() <= 1


def test_a_captured_step_solves(device: Device) -> None:
    a = polyhal.tensor(_matrix(3, 3).astype(np.float32), device=device)

    @polyhal.jit
    def step(x: Tensor) -> Tensor:
        return linalg.solve(a, x) + linalg.eigh(a).eigenvalues

    x = polyhal.ones((3,), device=device)
    values = a.numpy()
    expected = np.linalg.solve(values, np.ones(3)) + np.linalg.eigvalsh(values)
    for _ in range(3):
        np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_results_have_names() -> None:
    x = polyhal.tensor(_matrix(3, 3), device="numpy")
    assert linalg.qr(x)._fields == ("Q", "R")
    assert linalg.svd(x)._fields == ("U", "S", "Vh")
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")


def test_matrices_of_low_rank_are_found(device: Device) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(30, 3)) @ rng.normal(size=(3, 20))).astype(np.float32)
    u, s, v = linalg.svd_lowrank(polyhal.tensor(x, device=device), q=3)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(x, compute_uv=False)[:3], rtol=1e-4)
    np.testing.assert_allclose(((u * s) @ v.mT).numpy(), x, atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_indefinite_factors_are_lapacks(n: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(n).normal(size=(n, n))
    x = (x + x.T) * (1 - 0.9 * np.eye(n))
    factors, pivots = linalg.ldl_factor(polyhal.tensor(x, dtype=polyhal.float64, device="numpy"))
    expected = torch.linalg.ldl_factor(torch.tensor(x))
    assert pivots.tolist() == expected.pivots.tolist()
    np.testing.assert_allclose(np.tril(factors.numpy()), np.tril(expected.LD.numpy()), atol=1e-10)
    right = polyhal.ones((n, 2), dtype=polyhal.float64, device="numpy")
    np.testing.assert_allclose(x @ linalg.ldl_solve(factors, pivots, right).numpy(), np.ones((n, 2)), atol=1e-8)
