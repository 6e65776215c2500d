"""Copies, casts, fills and elementwise ops over every kind of layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, Spec, contiguous


def _as_ref(device: Any, base: Ref, array: np.ndarray, owner: np.ndarray) -> Ref:
    """Return the Ref of a NumPy view `array` of `owner`, whose bytes are in `base`."""
    offset = (array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]) // owner.itemsize
    return device.view(base, array.shape, tuple(s // owner.itemsize for s in array.strides), offset)  # type: ignore[no-any-return]


VIEWS = {
    "whole": lambda a: a,
    "transposed": lambda a: a.transpose(2, 1, 0),
    "permuted": lambda a: a.transpose(1, 0, 2),
    "swapped-last": lambda a: a.transpose(0, 2, 1),
    "sliced": lambda a: a[1:, ::2, 3:-1],
    "reversed": lambda a: a[::-1, :, ::-1],
    "stretched": lambda a: np.broadcast_to(a[:, :1, :], a.shape),
    "column": lambda a: a[:, :, 5],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 33, 70)], ids=str)
def test_copy_from_any_view(device: Any, rng: Any, name: str, shape: tuple[int, ...]) -> None:
    owner = rng.standard_normal(shape).astype(np.float32)
    base = device.upload(owner)
    array = VIEWS[name](owner)
    out = device.empty(dtypes.float32, array.shape)
    device.backend.copy(_as_ref(device, base, array, owner), out)
    np.testing.assert_array_equal(device.download(out), array)


@pytest.mark.parametrize("name", [n for n in VIEWS if n != "stretched"])
def test_copy_into_any_view_leaves_the_rest(device: Any, rng: Any, name: str) -> None:
    owner = rng.standard_normal((4, 19, 22)).astype(np.float32)
    base = device.upload(owner)
    target = VIEWS[name](owner)
    values = rng.standard_normal(target.shape).astype(np.float32)
    device.backend.copy(device.upload(values), _as_ref(device, base, target, owner))
    target[...] = values
    np.testing.assert_array_equal(device.download(base), owner)


@pytest.mark.parametrize(
    "dtype", [dtypes.bool_, dtypes.int16, dtypes.float16, dtypes.float32, dtypes.int64], ids=lambda d: d.name
)
def test_transpose_of_every_size_of_element(device: Any, rng: Any, dtype: dtypes.DType) -> None:
    a = rng.integers(0, 2 if dtype is dtypes.bool_ else 100, (70, 45)).astype(dtype.numpy)
    base, out = device.upload(a), device.empty(dtype, (45, 70))
    device.backend.copy(device.view(base, (45, 70), (1, 45)), out)
    np.testing.assert_array_equal(device.download(out), a.T)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_fill(device: Any, dtype: dtypes.DType) -> None:
    out = device.empty(dtype, (5, 9))
    device.backend.fill(0, out)
    device.backend.fill(3, device.view(out, (5, 4), (9, 2), 1))
    expected = np.zeros((5, 9), dtype.numpy)
    expected[:, 1:9:2] = 3
    np.testing.assert_array_equal(device.download(out), expected)


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
def test_casts(device: Any, rng: Any, source: dtypes.DType) -> None:
    low = 0 if source.kind in ("uint", "bool") else -100
    a = rng.uniform(low, 100, 133).astype(source.numpy)
    base = device.upload(a)
    for target in dtypes.ALL:
        out = device.empty(target, a.shape)
        device.backend.copy(base, out)
        with np.errstate(invalid="ignore"):
            expected = a.astype(target.numpy)
            if source.kind == "float" and target.kind == "uint" and low < 0:
                expected = a.astype(np.int64).astype(target.numpy)
                if target is dtypes.uint64:  # saturates: no wider signed type to pass through
                    expected = np.maximum(a.astype(np.float64), 0).astype(np.uint64)
        np.testing.assert_array_equal(device.download(out), expected, err_msg=f"{source.name} to {target.name}")


def test_casts_of_what_c_leaves_open_do_not_trap(device: Any) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30] * 4, np.float32)
    base = device.upload(a)
    limits = np.iinfo(np.int32)
    out = device.empty(dtypes.int32, a.shape)
    device.backend.copy(base, out)
    assert device.download(out)[:5].tolist() == [0, limits.max, limits.min, limits.max, limits.min]
    truth = device.empty(dtypes.bool_, a.shape)
    device.backend.copy(base, truth)
    assert device.download(truth).all()


BROADCASTS = [
    ((33, 70), (70,)),
    ((33, 70), (33, 1)),
    ((2, 5, 6, 7), (5, 1, 1)),
    ((4, 1), (1, 5)),
    ((1,), (100,)),
    ((), (3, 4)),
    ((2, 3, 4, 5, 6), (3, 1, 5, 1)),
    ((17, 16), (17, 16)),
    ((3, 1000), (1000,)),
]


@pytest.mark.parametrize(("left", "right"), BROADCASTS, ids=str)
def test_broadcasting(device: Any, rng: Any, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = rng.standard_normal(left).astype(np.float32), rng.standard_normal(right).astype(np.float32)
    expected = a + b
    actual = device.run("add", [device.upload(a), device.upload(b)], dtypes.float32, expected.shape)
    np.testing.assert_array_equal(actual, expected)


def test_views_as_operands(device: Any, rng: Any) -> None:
    owner = rng.standard_normal((40, 50)).astype(np.float32)
    base = device.upload(owner)
    for name, array in {"transposed": owner.T, "sliced": owner[3:, 1::3], "reversed": owner[::-1, ::-1]}.items():
        other = rng.standard_normal(array.shape).astype(np.float32)
        actual = device.run(
            "subtract", [_as_ref(device, base, array, owner), device.upload(other)], dtypes.float32, array.shape
        )
        np.testing.assert_array_equal(actual, array - other, err_msg=name)


def test_one_program_serves_all_shapes(device: Any, rng: Any) -> None:
    def run(*shape: int) -> None:
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(device.run("trunc", [device.upload(x)], dtypes.float32, shape), np.trunc(x))

    run(64)
    before = device.backend.runtime.programs.compilations
    run(1000)
    run(17, 31)
    run(4096)
    assert device.backend.runtime.programs.compilations == before


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_views(device: Any, data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    owner = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    array = owner.transpose(data.draw(st.permutations(range(len(shape)))))
    for axis in range(array.ndim):
        step = data.draw(st.sampled_from([1, 1, 2, -1]))
        array = array[(slice(None),) * axis + (slice(None, None, step),)]
    out = device.empty(dtypes.float32, array.shape)
    device.backend.copy(_as_ref(device, device.upload(owner), array, owner), out)
    np.testing.assert_array_equal(device.download(out), array)


def test_offsets_of_arenas(device: Any, rng: Any) -> None:
    """Tensors of different types have odd offsets in one allocation."""
    arena = device.backend.allocate(4096)
    a = rng.standard_normal(50).astype(np.float32)
    device.backend.copy_to_device(memoryview(a.view(np.uint8)), arena, 256)
    source = Ref(arena, contiguous(dtypes.float32, (50,)), 64)
    target = Ref(arena, Spec(dtypes.float16, (50,), (1,), False), 1001)
    device.backend.copy(source, target)
    np.testing.assert_array_equal(device.download(target), a.astype(np.float16))
