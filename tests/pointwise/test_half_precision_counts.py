"""Half precision with numbers and counts out of its range: float16 ends at 65,504, bfloat16 has 8 significant bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.nn import functional as F

_COUNT = 70_000
_SCALE = 1024.0
"""A loss scale, so that shares of 1 / 70,000 are normal numbers of float16."""


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


_SHARES: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "mean": (polyhal.mean, 1.0),
    "nanmean": (polyhal.nanmean, 1.0),
    "amax": (polyhal.amax, 1.0),
    "infinity norm": (lambda x: polyhal.linalg.vector_norm(x, ord=float("inf")), 1.0),
    "l1_loss": (lambda x: F.l1_loss(x, x.detach() * 0), 1.0),
    "mse_loss": (lambda x: F.mse_loss(x, x.detach() * 0), 2.0),
    "poisson_nll_loss": (lambda x: F.poisson_nll_loss(x, x.detach()), np.e - 1),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, x.detach()), 1.0),
    "kl_div": (lambda x: F.kl_div(x, x.detach()), -1.0),
    "logsumexp": (lambda x: polyhal.logsumexp(x, 0), 1.0),
    "avg_pool1d": (lambda x: F.avg_pool1d(x.reshape(1, 1, _COUNT), _COUNT).sum(), 1.0),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x.reshape(1, 1, _COUNT), 1).sum(), 1.0),
    "avg_pool2d": (lambda x: F.avg_pool2d(x.reshape(1, 1, 700, 100), (700, 100)).sum(), 1.0),
}
"""Functions of 70,000 ones, and 70,000 times the derivative by each."""


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float16") for name in _SHARES), ("mean", "bfloat16"), ("amax", "bfloat16")]
)
def test_the_gradient_of_a_mean_over_more_elements_than_half_precision_counts(
    device: Device, name: str, dtype: str
) -> None:
    if device.name.startswith("numpy:contiguous_only") and "pool" in name:
        pytest.skip("without a kernel, the gradient of a window of 70,000 elements has as many slices")
    function, share = _SHARES[name]
    x = polyhal.ones((_COUNT,), dtype=dtype, device=device, requires_grad=True)
    (function(x) * _SCALE).backward()
    units = 2.0**-11 if dtype == "float16" else 2.0**-8
    expected = share * _SCALE / _COUNT
    # Derivative and product round once each; a quarter of a subnormal unit is added for small results.
    np.testing.assert_allclose(x.grad.to("float32").numpy(), expected, rtol=4 * units)


def test_means_over_more_elements_than_half_precision_counts_are_one(device: Device) -> None:
    x = polyhal.ones((1, 1, _COUNT), dtype="float16", device=device)
    for mean in (F.avg_pool1d(x, _COUNT), F.adaptive_avg_pool1d(x, 1), x.mean(), polyhal.nanmean(x)):
        assert mean.item() == 1.0


@pytest.mark.parametrize("captured", [False, True])
def test_a_number_meets_half_precision_in_float32(device: Device, captured: bool) -> None:
    def scaled(x: Tensor) -> tuple[Tensor, ...]:
        return x * 3e9, x / 3e9, 3e9 - x, x / 70_000, x < 70_000

    function = polyhal.jit(scaled) if captured else scaled
    x = polyhal.tensor([0.0, 512.0], dtype="float16", device=device)
    for _ in range(3 if captured else 1):
        results = [y.numpy() for y in function(x)]
    exact = np.array([0.0, 512.0], np.float32)
    for got, want in zip(results, (exact * 3e9, exact / 3e9, 3e9 - exact, exact / 70_000, exact < 70_000), strict=True):
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(got, want.astype(got.dtype), rtol=2**-10)


@pytest.mark.parametrize("captured", [False, True])
def test_numbers_of_decompositions_and_losses_need_not_fit_half_precision(device: Device, captured: bool) -> None:
    def results(x: Tensor) -> tuple[Tensor, ...]:
        loss = F.smooth_l1_loss(x, x * 0, reduction="none", beta=1e-9)
        return polyhal.lerp(x, x, 3e9), polyhal.lerp(x * 0, x * 1e-6, 1e5), loss

    function = polyhal.jit(results) if captured else results
    x = polyhal.tensor([0.0, 0.5, 2.0], dtype="float16", device=device)
    for _ in range(3 if captured else 1):
        same, moved, loss = (y.numpy().astype(np.float64) for y in function(x))
    exact = np.array([0.0, 0.5, 2.0])
    np.testing.assert_array_equal(same, exact)
    # 5e-7 and 2e-6 are 8 and 34 units of float16's subnormal numbers: half a unit of rounding is at most a sixteenth.
    np.testing.assert_allclose(moved, exact * 0.1, rtol=1 / 15)
    np.testing.assert_allclose(loss, exact, rtol=2**-10)


def test_a_half_is_divided_by_an_integer_that_does_not_fit_it(device: Device) -> None:
    x = polyhal.tensor([512.0], dtype="float16", device=device)
    count = polyhal.tensor([_COUNT], dtype="int32", device=device)
    assert (x / count).dtype is polyhal.float16
    np.testing.assert_allclose((x / count).numpy(), 512 / _COUNT, rtol=2**-10)


def test_the_mean_by_index_of_more_rows_than_half_precision_counts_is_one(device: Device) -> None:
    if device.name.startswith("numpy:contiguous_only"):
        pytest.skip("tens of thousands of rows, one by one")
    x = polyhal.ones((_COUNT, 1), dtype="float16", device=device)
    index = polyhal.zeros((_COUNT,), dtype="int64", device=device)
    empty = polyhal.zeros((1, 1), dtype="float16", device=device)
    assert empty.index_reduce(0, index, x, "mean", include_self=False).item() == 1.0
    lengths = polyhal.tensor([_COUNT], device=device)
    assert polyhal.segment_reduce(x, "mean", lengths=lengths).item() == 1.0


def test_quantiles_of_half_precision_have_exact_ranks(device: Device) -> None:
    x = polyhal.arange(0, 4097, dtype="float32", device=device).to("float16")
    assert polyhal.quantile(x, 0.25).item() == 1024.0
    assert polyhal.quantile(x, 0.75, interpolation="lower").item() == 3072.0


def test_the_second_gradient_of_a_maximum_shares_among_all_that_are_equal(device: Device) -> None:
    x = polyhal.ones((_COUNT,), dtype="float16", device=device, requires_grad=True)
    (g,) = polyhal.grad((polyhal.amax(x) ** 2) * _SCALE, [x], create_graph=True)
    (second,) = polyhal.grad(g.to("float32").sum() / 4, [x])  # a quarter, so that the sum over the elements fits
    np.testing.assert_allclose(second.to("float32").numpy(), _SCALE / 2 / _COUNT, rtol=2**-8)
