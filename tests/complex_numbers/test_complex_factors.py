"""Factors and spectra of complex matrices, and gradients of functions that do not depend on phases, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.hal.errors import LinAlgError

torch = pytest.importorskip("torch")

WEIGHTS = np.array([0.3, -1.2, 2.0, 0.7])


def _matrices(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)


def _weights(lib: Any, like: Any) -> Any:
    return lib.tensor(WEIGHTS[: like.shape[-1]])


def _hermitian(a: Any) -> Any:
    return a @ a.mH + a.mH @ a


def _projector_loss(lib: Any, vectors: Any, values: Any) -> Any:
    """A function of the projectors on the columns."""
    projector = (vectors * _weights(lib, values)) @ vectors.mH
    return (projector.real * projector.real * 0.5 + projector.imag).sum() + (values * _weights(lib, values)).sum()


def _eigh(lib: Any, a: Any) -> Any:
    values, vectors = lib.linalg.eigh(_hermitian(a))
    return _projector_loss(lib, vectors, values)


def _svd(lib: Any, a: Any) -> Any:
    u, s, vh = lib.linalg.svd(a, full_matrices=False)
    turned = (u * _weights(lib, s)) @ vh
    return (turned.real * turned.real + turned.imag).sum() + (s * s * _weights(lib, s)).sum()


def _qr(lib: Any, a: Any) -> Any:
    q, r = lib.linalg.qr(a)
    columns = q[..., :2] @ q[..., :2].mH
    size = r.real * r.real + r.imag * r.imag
    return (columns.real * columns.imag + columns.real).sum() + size[..., 0, :].sum() * 0.5


def _cholesky(upper: bool) -> Callable[[Any, Any], Any]:
    def loss(lib: Any, a: Any) -> Any:
        factor = lib.linalg.cholesky(_hermitian(a) + lib.tensor(np.eye(3)), upper=upper)
        return (factor.real * factor.real + factor.imag).sum()

    return loss


LOSSES: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "eigh": ((2, 3, 3), _eigh),
    "eigvalsh": ((2, 3, 3), lambda lib, a: (lib.linalg.eigvalsh(_hermitian(a)) * _weights(lib, a)).sum()),
    "svd of square matrices": ((2, 3, 3), _svd),
    "svd of tall matrices": ((2, 4, 3), _svd),
    "svd of wide matrices": ((3, 4), _svd),
    "svdvals": ((2, 4, 3), lambda lib, a: (lib.linalg.svdvals(a) * _weights(lib, a)).sum()),
    "qr": ((2, 4, 3), _qr),
    "qr of wide matrices": ((3, 4), _qr),
    "cholesky": ((2, 3, 3), _cholesky(False)),
    "upper cholesky": ((3, 3), _cholesky(True)),
    "pinv": ((2, 4, 3), lambda lib, a: (lib.linalg.pinv(a).real + lib.linalg.pinv(a).imag * 2).sum()),
    "det": ((2, 3, 3), lambda lib, a: (lib.linalg.det(a).real + lib.linalg.det(a).imag * 2).sum()),
    "slogdet": (
        (2, 3, 3),
        lambda lib, a: (lib.linalg.slogdet(a)[0].imag + lib.linalg.slogdet(a)[1] * 2).sum(),
    ),
    "nuclear norm": ((3, 4), lambda lib, a: lib.linalg.matrix_norm(a, ord="nuc")),
}


@pytest.mark.parametrize("name", LOSSES)
def test_values_and_gradients(name: str) -> None:
    """The conditions of the matrices are below 1e3, and their singular values differ: float64 leaves 1e-10."""
    shape, loss = LOSSES[name]
    values = _matrices(*shape)
    with polyhal.Device("numpy"):
        ours = polyhal.tensor(values, requires_grad=True)
        found = loss(polyhal, ours)
        found.backward()
    theirs = torch.tensor(values, requires_grad=True)
    expected = loss(torch, theirs)
    expected.backward()
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-10)
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_failed_minors_are_numbered() -> None:
    a = polyhal.tensor(np.diag([1.0, -1.0, 2.0]).astype(np.complex128), device="numpy")
    with pytest.raises(LinAlgError, match="its leading minor of order 2 is not"):
        polyhal.linalg.cholesky(a)
    assert polyhal.linalg.cholesky_ex(a).info.item() == 2


def test_hermitian_matrices_are_read_from_one_triangle(device: polyhal.Device) -> None:
    values = _hermitian(polyhal.tensor(_matrices(4, 4), device="numpy")).numpy().astype(np.complex64)
    for uplo in "LU":
        other = np.tril(values) if uplo == "L" else np.triu(values)
        found = polyhal.linalg.eigvalsh(polyhal.tensor(other, device=device), uplo)
        np.testing.assert_allclose(found.numpy(), np.linalg.eigvalsh(values), rtol=1e-5, atol=1e-5)
    assert polyhal.linalg.matrix_rank(polyhal.tensor(values[:2], device=device)).item() == 2
