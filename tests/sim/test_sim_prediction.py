"""The time model: more work never takes less time, and predictions of training steps are reproducible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.suite.prediction import predict
from benchmarks.training_workloads import WORKLOADS
from polyhal.backends.sim.costs import kernel_cost
from polyhal.backends.sim.timing import kernel_ns, submission_ns
from polyhal.hal import dtypes
from polyhal.hal.core.hardware.profile import load_profile, profile_names
from polyhal.hal.device import Device
from polyhal.hal.layout import contiguous


def product_ns(profile: str, m: int, k: int, n: int) -> int:
    """Return the virtual time of a product."""
    a, b, out = (contiguous(dtypes.float32, shape) for shape in ((m, k), (k, n), (m, n)))
    return kernel_ns(load_profile(profile), kernel_cost("matmul", (a, b), (out,), {}))


@given(st.sampled_from(profile_names()), *[st.integers(1, 600)] * 3, st.integers(2, 4))
def test_a_larger_product_takes_as_long_or_longer(profile: str, m: int, k: int, n: int, factor: int) -> None:
    assert product_ns(profile, m * factor, k, n) >= product_ns(profile, m, k, n)
    assert product_ns(profile, m, k * factor, n) >= product_ns(profile, m, k, n)


def test_a_product_with_few_tiles_leaves_compute_units_idle() -> None:
    """Two tiles of 64 x 128 on 132 units, unless the sums are split across work-groups."""
    short, long = product_ns("h200", 128, 128, 128), product_ns("h200", 128, 128 * 128, 128)
    assert long - load_profile("h200").launch_ns < 20 * (short - load_profile("h200").launch_ns)


def test_operands_in_the_cache_are_faster() -> None:
    profile = load_profile("cpu_2core")
    small, large = (
        kernel_ns(profile, kernel_cost("add", (x, x), (x,), {})) - profile.launch_ns
        for x in (contiguous(dtypes.float32, (n << 20,)) for n in (1, 10))
    )
    assert large > 13 * small


def test_windows_that_overlap_and_short_rows_are_slow_on_processors() -> None:
    profile = load_profile("cpu_2core")
    x = contiguous(dtypes.float32, (8, 64, 56, 56))
    out = contiguous(dtypes.float32, (8, 64, 28, 28))
    stride = {"stride": (2, 2)}
    plain, overlapping = (kernel_cost("max_pool2d", (x,), (out,), {"kernel": (k, k), **stride}) for k in (2, 3))
    assert (plain.family, overlapping.family) == ("pooling", "overlapping_pooling")
    assert kernel_ns(profile, overlapping) > 4 * kernel_ns(profile, plain)


def test_a_driver_without_command_buffers_submits_each_kernel_again() -> None:
    x = contiguous(dtypes.float32, (8, 8))
    cost = kernel_cost("add", (x, x), (x,), {})
    assert submission_ns(load_profile("h200"), cost) == load_profile("h200").replay_ns > 0
    assert submission_ns(load_profile("teaching"), cost) == 0


@pytest.mark.parametrize("profile", ["h200", "cpu_2core"])
def test_predictions_of_a_step_are_reproducible(profile: str) -> None:
    device = Device(f"sim:{profile},compute=off")
    first, second = (predict(WORKLOADS["mlp"], device, "highest") for _ in range(2))
    assert first == second > 0
