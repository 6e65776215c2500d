"""Requirements of the optimizer kernels of every backend: steps over more tensors than one launch holds, in place and not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_ops import check, lower, run, upload
from optimizer_inputs import ADAM, COUNT, FLAGS, tensors

from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(device: Any, rng: Any, decoupled: bool, dtype: dtypes.DType) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01), *ADAM]
    check(device, "adam_step", xs, dtype, ulps=16, **{**FLAGS, "decoupled": decoupled})


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_adam_keeps_half_precision_parameters_beside_single_precision_state(
    device: Any, rng: Any, dtype: dtypes.DType
) -> None:
    state = [x.astype(np.float32) for x in (*tensors(rng), *tensors(rng, 0.01))]
    check(device, "adam_step", [*tensors(rng), *tensors(rng), *state, *ADAM], dtype, **FLAGS)


def test_adam_in_place(device: Any, rng: Any) -> None:
    arrays = [x.astype(np.float32) for x in (*tensors(rng), *tensors(rng), *tensors(rng), *tensors(rng, 0.01))]
    want = run(device, "adam_step", [*arrays, *ADAM], **FLAGS)
    refs = [upload(device, x.copy()) for x in arrays]
    launch, _ = lower(device, "adam_step", [*refs, *ADAM], FLAGS)
    assert not isinstance(launch, Declined)
    outputs = [*refs[:COUNT], *refs[2 * COUNT :]]
    launch(*refs, *ADAM, *outputs, *[device.backend.allocate(n) for n in launch.workspace])
    for ref, expected in zip(outputs, want, strict=True):
        np.testing.assert_array_equal(device.download(ref), expected)


def test_gradients_may_be_views(device: Any, rng: Any) -> None:
    p = rng.uniform(-1, 1, (20, 30))
    views = [rng.uniform(-1, 1, (30, 20)).T, rng.uniform(-1, 1, (40, 30))[::2]]
    flags = {"count": 2, "has_momentum": False, "nesterov": False, "counted": False}
    check(device, "sgd_step", [p, p, *views, 1, 0.1, 0.0, 0.0, 0.01], **flags)
    check(device, "sum_of_squares", views, ulps=16)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_momentum(device: Any, rng: Any, nesterov: bool) -> None:
    xs = [*tensors(rng), *tensors(rng), *tensors(rng), 2, 0.1, 0.9, 0.5 * (not nesterov), 0.01]
    check(device, "sgd_step", xs, count=COUNT, has_momentum=True, nesterov=nesterov, counted=False)


_SQUARE_AND_DOUBLE: dict[str, Any] = {
    "lists": 2,
    "steps": (("multiply", (0, 1), ()), ("add", (0, 2), ())),
    "sums": (3, 0),
}


@pytest.mark.kernels_of("foreach_elementwise")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("results", [(), (4,)], ids=["sums alone", "with results"])
@pytest.mark.parametrize("sizes", [(7, 15, 1, 660), (7, 70001, 1, 50000)], ids=["a chunk each", "several chunks"])
def test_sums_of_each_tensor(
    device: Any, rng: Any, sizes: tuple[int, ...], results: tuple[int, ...], dtype: dtypes.DType
) -> None:
    sizes = sizes * 6
    xs = [rng.uniform(0, 1, n) for _ in range(2) for n in sizes]
    params = {**_SQUARE_AND_DOUBLE, "count": len(sizes), "results": results}
    # A chunk's sum has at most 2^14 terms, in vectors of 4 or more; their roundings mostly cancel.
    check(device, "foreach_elementwise", [*xs, 0.5], dtype, ulps=64, **params)


_MATRICES: list[tuple[int, ...]] = [(3, 5), (1, 300), (2, 70, 33), (40, 1), (130, 513)] * 6


@pytest.mark.kernels_of("foreach_elementwise")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=lambda d: d.name)
def test_lists_with_an_element_for_each_row_column_or_matrix(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    xs = [
        rng.uniform(0.5, 1, shape)
        for ends in (lambda s: s, lambda s: (*s[:-1], 1), lambda s: (*s[:-2], 1, s[-1]), lambda s: (*s[:-2], 1, 1))
        for shape in map(ends, _MATRICES)
    ]
    steps = (("multiply", (1, 2), ()), ("divide", (4, 3), ()), ("multiply", (0, 5), ()))
    check(device, "foreach_elementwise", xs, dtype, lists=4, count=len(_MATRICES), steps=steps, results=(6,))


@pytest.mark.kernels_of("foreach_elementwise")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=lambda d: d.name)
def test_lists_of_numbers(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    shapes: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 20), (70001,)] * 6
    xs = [rng.uniform(0.5, 1, s) for s in shapes]
    numbers = [2.0**-i for i in range(len(shapes))]
    steps = (("multiply", (0, 1), ()), ("add", (4, 2), ()), ("subtract", (5, 3), ()))
    params = {"lists": 3, "count": len(shapes), "steps": steps, "results": (6,)}
    check(device, "foreach_elementwise", [*xs, *numbers, *xs, 0.25], dtype, **params)


@pytest.mark.kernels_of("foreach_elementwise")
def test_as_many_tensors_in_a_launch_as_numbers_of_64_bits_leave_room_for(device: Any, rng: Any) -> None:
    """Two of four numbers have 64 bits, so that 7 slots need 34 words where wgpu has 32."""
    count = 8
    xs = [rng.uniform(0.5, 1, 20) for _ in range(2 * count)]
    steps = tuple(("add" if i else "multiply", (0 if not i else 5 + i, 2 + i), ()) for i in range(4))
    params = {"lists": 2, "count": count, "steps": (*steps, ("add", (9, 1), ())), "results": (10,)}
    check(device, "foreach_elementwise", [*xs, 0.5, 0.25, 3, 4], dtypes.float32, **params)


@pytest.mark.kernels_of("means_along")
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=lambda d: d.name)
def test_means_of_rows_and_columns(device: Any, rng: Any, dtype: dtypes.DType, square: bool) -> None:
    xs = [rng.uniform(0, 1, shape) for shape in _MATRICES]
    axes = (-1,) * len(xs) + (-2,) * len(xs)
    # At most 513 terms in vectors, whose roundings mostly cancel; results have at least single precision.
    check(device, "means_along", [*xs, *xs], dtype, ulps=32, axes=axes, square=square)


@pytest.mark.kernels_of("norms")
def test_norms_of_each_tensor(device: Any, rng: Any) -> None:
    xs = [*tensors(rng), np.zeros((0, 3))]
    check(device, "norms", xs, ulps=64)


def test_gradient_scaling(device: Any, rng: Any) -> None:
    xs = tensors(rng)
    check(device, "sum_of_squares", xs, ulps=64)
    for factor in np.float32([0.3, 1.0]):
        got = run(device, "scale_all", [*[x.astype(np.float32) for x in xs], np.full((), factor)])
        for result, x in zip(got, xs, strict=True):
            np.testing.assert_array_equal(result, x.astype(np.float32) * factor)


def test_the_reference_is_adam_as_published() -> None:
    p, g, zero = np.array([1.0]), np.array([0.5]), np.array([0.0])
    new, *_ = OPS["adam_step"].reference(p, g, zero, zero, 1, 0.1, 0.9, 0.999, 0.0, 0.0, **{**FLAGS, "count": 1})
    np.testing.assert_allclose(new, 0.9)
