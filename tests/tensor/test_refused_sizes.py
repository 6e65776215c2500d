"""Sizes beyond any machine's memory raise a typed error at once, on all devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import polyhal as ph
from polyhal.hal.errors import OutOfMemoryError, ShapeError

HUGE = 2**50
CALLS: dict[str, Callable[[], Any]] = {
    "eye": lambda: ph.eye(2**25),
    "linspace": lambda: ph.linspace(0, 1, HUGE),
    "logspace": lambda: ph.logspace(0, 1, HUGE),
    "tril_indices": lambda: ph.tril_indices(2**30, 2**30),
    "triu_indices": lambda: ph.triu_indices(2**30, 2**30),
    "arange": lambda: ph.arange(HUGE),
    "zeros": lambda: ph.zeros(2**62, 2**62),
    "rand": lambda: ph.rand(HUGE),
    "randperm": lambda: ph.randperm(HUGE),
    "randint": lambda: ph.randint(5, (HUGE,)),
    "hann_window": lambda: ph.hann_window(HUGE),
    "kaiser_window": lambda: ph.kaiser_window(HUGE),
    "fftfreq": lambda: ph.fft.fftfreq(HUGE),
    "rfftfreq": lambda: ph.fft.rfftfreq(HUGE),
    "vander": lambda: ph.vander(ph.ones(4), HUGE),
    "combinations": lambda: ph.combinations(ph.arange(2**12), 9),
    "one_hot": lambda: ph.nn.functional.one_hot(ph.tensor([1]), HUGE),
    "Linear": lambda: ph.nn.Linear(2**28, 2**28),
    "RotaryEmbedding": lambda: ph.nn.RotaryEmbedding(64, HUGE),
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes_beyond_all_memory_are_refused_at_once(name: str, numpy_device: ph.Device) -> None:
    start = time.monotonic()
    with pytest.raises(OutOfMemoryError):
        CALLS[name]()
    assert time.monotonic() - start < 10, "no work was begun"


def test_tables_that_a_device_makes_on_the_host_are_refused(device: ph.Device) -> None:
    with pytest.raises(OutOfMemoryError, match=r"^\[\w+\] .*no memory"):
        ph.nn.functional.interpolate(ph.ones((1, 1, 2), device=device), size=HUGE)


@pytest.mark.parametrize("bounds", [(0, float("inf")), (float("-inf"), 0), (float("nan"),), (0, 1, float("inf"))])
def test_ranges_without_an_end_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ShapeError, match="expected finite numbers"):
        ph.arange(*bounds, device="numpy")


def test_errors_of_gradients_that_are_not_finite_match_pytorchs() -> None:
    p = ph.ones(2, device="numpy", requires_grad=True)
    (p * float("inf")).sum().backward()
    for kind in (RuntimeError, ArithmeticError, ph.errors.NonFiniteError):
        with pytest.raises(kind, match="clip_grad_norm_"):
            ph.nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


def test_an_empty_source_suffices_without_a_hit(device: ph.Device) -> None:
    x, nothing = ph.tensor([1.0, 2.0], device=device), ph.zeros(0, device=device)
    assert x.masked_scatter(ph.tensor([False, False], device=device), nothing).tolist() == [1, 2]
    with pytest.raises(ShapeError, match="the source is empty"):
        x.masked_scatter(ph.tensor([False, True], device=device), nothing)


def test_a_tensor_without_axes_takes_a_mask_without_axes(device: ph.Device) -> None:
    torch = pytest.importorskip("torch")
    for value in (0.5, 2.0):
        x, y = ph.tensor(value, device=device, requires_grad=True), torch.tensor(value, requires_grad=True)
        assert x[x > 1].tolist() == y[y > 1].tolist()
        x[x > 1].sum().backward()
        y[y > 1].sum().backward()
        assert x.grad is not None
        assert x.grad.item() == y.grad.item()
        z, w = x.detach(), y.detach()
        z[z > 1] = 7
        w[w > 1] = 7
        assert z.item() == w.item()
    rows = ph.arange(3.0, device=device)
    for item in (True, False):
        assert rows[item].shape == torch.arange(3.0)[item].shape
        assert rows[ph.tensor(item, device=device)].shape == torch.arange(3.0)[torch.tensor(item)].shape
