"""Eigenvalues of matrices that are not symmetric, and complex systems of equations."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal import linalg
from polyhal.autograd import gradcheck


def matrices(*shape: int, complex_numbers: bool = False) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if complex_numbers else 0)


def test_eigenvectors_are_scaled_by_their_matrix(device: ph.Device) -> None:
    for complex_numbers in (False, True):
        a = matrices(2, 4, 4, complex_numbers=complex_numbers)
        x = ph.tensor(a.astype(np.complex64 if complex_numbers else np.float32), device=device)
        values, vectors = linalg.eig(x)
        np.testing.assert_allclose((x @ vectors).numpy(), (vectors * values[:, None]).numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(linalg.eigvals(x).numpy(), np.linalg.eigvals(a), rtol=1e-4, atol=1e-5)


def test_gradients_of_what_does_not_depend_on_phases() -> None:
    arrays = matrices(2, 3, 3), matrices(3, 3, 2).transpose(2, 0, 1)
    parts = [ph.tensor(a, device="numpy", requires_grad=True) for a in arrays]

    def function(re: Any, im: Any) -> Any:
        results = []
        for a in (re, ph.complex(re, im)):
            values, vectors = linalg.eig(a)
            results += [ph.view_as_real((values**2).sum(-1)), values.abs() ** 3, vectors.abs() ** 3]
        return tuple(results)

    assert gradcheck(function, parts)


def test_complex_systems_are_solved(device: ph.Device) -> None:
    a, b = (matrices(2, 4, n, complex_numbers=True).astype(np.complex64) + 3 * np.eye(4, n) for n in (4, 3))
    x, y = ph.tensor(a.astype(np.complex64), device=device), ph.tensor(b.astype(np.complex64), device=device)
    np.testing.assert_allclose(linalg.solve(x, y).numpy(), np.linalg.solve(a, b), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(linalg.inv(x).numpy(), np.linalg.inv(a), rtol=1e-4, atol=1e-5)
