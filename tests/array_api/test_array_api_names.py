"""Functions that the Array API names and neither NumPy's nor PyTorch's spelling covers, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.hal.errors import ShapeError

X = np.array([[3, 1, 3], [0, 1, 2]], np.int32)
Z = np.array([1 + 2j, -0.0, 1 - 1j, 0, 1 + 2j], np.complex64)


@pytest.mark.parametrize("values", [X, Z, np.array([2.5, -1.0, 2.5], np.float32), np.zeros((0, 2), np.int32)])
def test_distinct_elements_have_positions_numbers_and_counts(values: np.ndarray, device: polyhal.Device) -> None:
    found = polyhal.unique_all(polyhal.tensor(values, device=device))
    expected = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.reshape(got.shape))
    assert found.inverse_indices.shape == values.shape
    x = polyhal.tensor(values, device=device)
    np.testing.assert_array_equal(polyhal.unique_counts(x).counts.numpy(), expected[3])
    np.testing.assert_array_equal(polyhal.unique_inverse(x).values.numpy(), expected[0])
    np.testing.assert_array_equal(polyhal.unique_values(x).numpy(), expected[0])


def test_keywords_and_names_of_the_standard() -> None:
    x = polyhal.tensor(X, device="numpy")
    floats = polyhal.tensor(X.astype(np.float32), device="numpy")
    cases: list[tuple[Any, Any]] = [
        (polyhal.cumulative_sum(x, axis=1, include_initial=True), np.insert(np.cumsum(X, 1), 0, 0, 1)),
        (polyhal.cumulative_prod(x[0], dtype=polyhal.float32), np.cumprod(X[0].astype(np.float32))),
        (polyhal.permute_dims(x, (1, 0)), X.T),
        (polyhal.matrix_transpose(x), X.T),
        (polyhal.expand_dims(x, axis=(0, -1)), np.expand_dims(X, (0, -1))),
        (polyhal.repeat(x, 2, axis=1), np.repeat(X, 2, 1)),
        (polyhal.repeat(x, polyhal.tensor([1, 2], device="numpy"), axis=0), np.repeat(X, [1, 2], 0)),
        (polyhal.unstack(x, axis=1)[1], X[:, 1]),
        (polyhal.tril(x, k=-1), np.tril(X, -1)),
        (polyhal.roll(x, shift=(1,), axis=(1,)), np.roll(X, 1, 1)),
        (polyhal.eye(2, 3, k=1, device="numpy"), np.eye(2, 3, 1)),
        (polyhal.linspace(0, 1, 4, endpoint=False, device="numpy"), np.linspace(0, 1, 4, endpoint=False)),
        (polyhal.zeros(shape=(2, 1), device="numpy"), np.zeros((2, 1))),
        (polyhal.full(shape=(2,), fill_value=3, device="numpy"), np.full(2, 3)),
        (polyhal.linalg.trace(x, dtype=polyhal.float32), np.float32(4)),
        (polyhal.linalg.matrix_norm(floats, keepdims=True), np.linalg.norm(X, keepdims=True)),
        (polyhal.linalg.vector_norm(floats, axis=1, ord=1), np.abs(X).sum(1)),
    ]
    for got, want in cases:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        assert got.shape == want.shape


def test_reshapes_copy_or_refuse_to() -> None:
    x = polyhal.tensor(X, device="numpy")
    assert polyhal.reshape(x, (3, 2), copy=False).buffer is x.buffer
    for copied in (polyhal.reshape(x, (3, 2), copy=True), x.reshape((2, 3), copy=True)):
        assert copied.buffer is not x.buffer
    with pytest.raises(ValueError, match=r"shape \(3, 2\) with strides \(1, 3\) as \(6,\) takes a copy"):
        polyhal.reshape(x.T, (6,), copy=False)


def test_dtypes_and_devices_are_described() -> None:
    x = polyhal.ones((2, 2), device="numpy")
    assert x.__array_namespace__() is x.__array_namespace__(api_version=polyhal.__array_api_version__) is polyhal
    with pytest.raises(ValueError, match=r"version '2020\.01'; expected None or one of 2021\.12"):
        x.__array_namespace__(api_version="2020.01")
    info = polyhal.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.capabilities()["boolean indexing"]
    assert info.dtypes(device="numpy", kind=("bool", "complex floating")) == {
        "bool": polyhal.bool_,
        "complex64": polyhal.complex64,
        "complex128": polyhal.complex128,
    }
    assert info.default_dtypes(device="numpy")["indexing"] is polyhal.int64
    assert polyhal.isdtype(polyhal.uint8, ("signed integer", polyhal.uint8))
    assert not polyhal.isdtype(polyhal.bool_, "numeric")
    with pytest.raises(ValueError, match="kind 'real'; expected a dtype or one of bool, signed integer"):
        polyhal.isdtype(polyhal.float32, "real")
    assert polyhal.finfo(x).dtype is polyhal.float32
    assert polyhal.astype(x, polyhal.float32).buffer is not x.buffer
    assert polyhal.astype(x, polyhal.float32, copy=False) is x.to_device(x.device) is x
    with pytest.raises(ValueError, match="got stream 7; expected None"):
        x.to_device(x.device, stream=7)
    assert complex(polyhal.tensor(2.0)) == 2 + 0j


def test_unsuitable_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"got shape \(3,\); expected two axes at least"):
        polyhal.matrix_transpose(polyhal.ones(3))
    with pytest.raises(ValueError, match=r"shape \(2, 3\) without an axis; expected a vector, or axis="):
        polyhal.cumulative_sum(polyhal.ones((2, 3)))
