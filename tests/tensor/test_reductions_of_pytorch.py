"""Reductions under PyTorch's names: cases that are not among PyTorch's own samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.nn import functional as F

_NAN = float("nan")


def _both(values: Any, device: ph.Device) -> tuple[ph.Tensor, torch.Tensor]:
    array = np.array(values, np.float32)
    return ph.tensor(array, device=device, requires_grad=True), torch.tensor(array, requires_grad=True)


def _check(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@pytest.mark.parametrize("name", ["cummax", "cummin", "median", "nanmedian", "mode"])
def test_nan_and_ties_count_as_in_pytorch(name: str, device: ph.Device) -> None:
    x, t = _both([[1, 3, 3, 2, 5], [1, _NAN, 0, _NAN, 7], [2, 2, 1, 1, 1], [_NAN] * 5], device)
    rows = slice(0, 3, 2) if name == "mode" else slice(None)
    ours, theirs = getattr(ph, name)(x[rows], 1), getattr(torch, name)(t[rows], 1)
    _check(ours[0], theirs[0])
    if name in ("cummax", "cummin"):
        _check(ours[1], theirs[1])


@pytest.mark.parametrize("name", ["median", "nanmedian", "amax", "amin"])
def test_equal_elements_share_the_gradient_of_a_whole_tensor(name: str, device: ph.Device) -> None:
    x, t = _both([2, 1, 2, 2, 5, 5, 0, 0], device)
    getattr(ph, name)(x).backward()
    getattr(torch, name)(t).backward()
    _check(x.grad, t.grad)


def test_quantiles_between_infinities(device: ph.Device) -> None:
    x = ph.tensor([-np.inf, np.inf, np.inf, 1.0], device=device)
    assert ph.quantile(x, 0.9).item() == np.inf
    assert ph.quantile(x, ph.tensor([0.0, 1.0], device=device)).tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize("row", [[-2.0, -np.inf, 1.0], [2.0, np.inf, -1.0], [-np.inf, 3.0, np.inf]])
def test_quantiles_next_to_an_infinity_follow_pytorch(row: list[float], device: ph.Device) -> None:
    for q in (0.2, 0.3, 0.5, 0.7, 0.8):
        theirs = torch.quantile(torch.tensor(row), q)
        np.testing.assert_allclose(ph.quantile(ph.tensor(row, device=device), q).item(), theirs.item(), rtol=1e-6)


def test_quantile_follows_numpy_in_every_interpolation(device: ph.Device) -> None:
    values = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    for method in ("linear", "lower", "higher", "midpoint", "nearest"):
        ours = ph.quantile(ph.tensor(values, device=device), 0.3, 1, interpolation=method)
        np.testing.assert_allclose(ours.numpy(), np.quantile(values, 0.3, axis=1, method=method), rtol=1e-6)


def test_logcumsumexp_after_minus_infinity_has_finite_gradients(device: ph.Device) -> None:
    x, _ = _both([-np.inf, -np.inf, 0.0, 1.0], device)
    ph.logcumsumexp(x, 0)[2:].sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 1 + 1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-5)


def test_searchsorted_puts_nan_last(device: ph.Device) -> None:
    sequence = np.array([0.0, 1.0, 1.0, _NAN], np.float32)
    values = np.array([1.0, _NAN, 0.5], np.float32)
    for right, places in ((False, [1, 4, 1]), (True, [3, 4, 1])):
        ours = ph.searchsorted(ph.tensor(sequence, device=device), ph.tensor(values, device=device), right=right)
        assert ours.tolist() == places


def test_equal_rows_have_distance_0_with_a_finite_gradient(device: ph.Device) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        x, _ = _both(rows, device)
        d = ph.cdist(x, x, compute_mode=mode)
        d.sum().backward()
        assert x.grad is not None
        assert np.isfinite(x.grad.numpy()).all()
        np.testing.assert_allclose(d.detach().numpy(), torch.cdist(torch.tensor(rows), torch.tensor(rows)), atol=4e-3)


def test_cosine_similarity_of_zeros_has_the_gradient_of_pytorch(device: ph.Device) -> None:
    x, t = _both([[0, 0], [3, 4]], device)
    y, u = _both([[1, 2], [0, 1]], device)
    F.cosine_similarity(x, y).sum().backward()
    torch.nn.functional.cosine_similarity(t, u).sum().backward()
    assert x.grad is not None and t.grad is not None  # noqa: PT018
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-5)


def test_lengths_that_depend_on_data_refuse_capture() -> None:
    x = ph.tensor([3, 1, 1], device="numpy")
    for function in (ph.unique, ph.unique_consecutive, ph.bincount):
        with pytest.raises(ph.errors.CaptureError, match="only being recorded"):
            ph.jit(function, warm_up=False)(x)


def test_bincount_refuses_negative_numbers(device: ph.Device) -> None:
    with pytest.raises(ValueError, match="negative"):
        ph.bincount(ph.tensor([1, -1], device=device))


def test_a_second_gradient_through_running_extrema_and_norms(device: ph.Device) -> None:
    x, t = _both([3, 1, 4, 1.5, 5], device)
    for ours, theirs in [
        (lambda x: (ph.cummax(x, 0)[0] ** 3).sum(), lambda x: (torch.cummax(x, 0)[0] ** 3).sum()),
        (lambda x: ph.norm(x, 3), lambda x: torch.norm(x, 3)),
        (lambda x: ph.logcumsumexp(x, 0).sum(), lambda x: torch.logcumsumexp(x, 0).sum()),
        (ph.std, lambda x: torch.std(x, correction=0)),
    ]:
        (g,) = ph.grad([ours(x)], [x], create_graph=True)
        (h,) = ph.grad([(g * g).sum()], [x])
        (tg,) = torch.autograd.grad(theirs(t), [t], create_graph=True)
        (th,) = torch.autograd.grad((tg * tg).sum(), [t])
        np.testing.assert_allclose(h.numpy(), th.numpy(), rtol=1e-4, atol=1e-5)
