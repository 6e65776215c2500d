"""Element types: promotion against NumPy and PyTorch, names, limits."""

from __future__ import annotations

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.dtypes import ALL, DType, as_dtype, promote, promote_scalar

_PAIRS = list(itertools.product(ALL, ALL))
_PLAIN = [d for d in ALL if d is not dtypes.bfloat16]


@pytest.mark.parametrize(("a", "b"), _PAIRS, ids=lambda d: d.name)
def test_promotion_is_symmetric_and_idempotent(a: DType, b: DType) -> None:
    both = promote(a, b)
    assert both is promote(b, a)
    assert promote(both, a) is both
    assert promote(both, b) is both


@pytest.mark.parametrize(
    ("a", "b"),
    [(a, b) for a, b in _PAIRS if a in _PLAIN and b in _PLAIN and a.kind != "float" and b.kind != "float"],
    ids=lambda d: d.name,
)
def test_integers_promote_as_in_numpy(a: DType, b: DType) -> None:
    assert promote(a, b).numpy == np.promote_types(a.numpy, b.numpy)


@pytest.mark.parametrize(("a", "b"), [(a, b) for a, b in _PAIRS if a.kind == b.kind == "float"], ids=lambda d: d.name)
def test_floats_promote_as_in_ml_dtypes(a: DType, b: DType) -> None:
    if {a, b} == {dtypes.float16, dtypes.bfloat16}:
        assert promote(a, b) is dtypes.float32  # ml_dtypes raises, PyTorch returns float32
        return
    assert promote(a, b).numpy == np.promote_types(a.numpy, b.numpy)


_IN_TORCH = [d for d in ALL if d.name not in ("uint16", "uint32", "uint64")]
"""Dtypes that PyTorch promotes; it promotes few unsigned ones."""


@pytest.mark.parametrize(("a", "b"), list(itertools.product(_IN_TORCH, _IN_TORCH)), ids=lambda d: d.name)
def test_promotion_is_pytorchs(a: DType, b: DType) -> None:
    torch = pytest.importorskip("torch")
    names = {"bool_": "bool"}
    expected = torch.promote_types(getattr(torch, names.get(a.name, a.name)), getattr(torch, names.get(b.name, b.name)))
    found = promote(a, b)
    assert str(expected) == f"torch.{names.get(found.name, found.name)}"


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (dtypes.float32, float, dtypes.float32),
        (dtypes.float16, float, dtypes.float16),
        (dtypes.bfloat16, int, dtypes.bfloat16),
        (dtypes.int8, int, dtypes.int8),
        (dtypes.uint64, int, dtypes.uint64),
        (dtypes.int32, float, dtypes.float32),
        (dtypes.bool_, bool, dtypes.bool_),
        (dtypes.bool_, int, dtypes.int64),
        (dtypes.bool_, float, dtypes.float32),
        (dtypes.float64, bool, dtypes.float64),
        (dtypes.int16, bool, dtypes.int16),
    ],
)
def test_numbers_only_promote_the_kind(dtype: DType, number: type, expected: DType) -> None:
    assert promote_scalar(dtype, number) is expected


def test_accumulators_hold_at_least_float32_and_64_bits() -> None:
    assert dtypes.accumulator(dtypes.float16) is dtypes.float32
    assert dtypes.accumulator(dtypes.float64) is dtypes.float64
    assert dtypes.accumulator(dtypes.uint8) is dtypes.uint64
    assert dtypes.accumulator(dtypes.bool_) is dtypes.int64


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("float32", dtypes.float32),
        ("bool", dtypes.bool_),
        (float, dtypes.float32),
        (int, dtypes.int64),
        (bool, dtypes.bool_),
        (np.float16, dtypes.float16),
        (np.dtype("<i4"), dtypes.int32),
        (ml_dtypes.bfloat16, dtypes.bfloat16),
        (dtypes.uint8, dtypes.uint8),
    ],
)
def test_as_dtype(name: object, expected: DType) -> None:
    assert as_dtype(name) is expected


@pytest.mark.parametrize(
    "name", ["float31", np.clongdouble, "complex32", object(), np.dtype("U3"), None, "9" * 5000, "(", ""]
)
def test_as_dtype_refuses(name: object) -> None:
    with pytest.raises(TypeError, match="names no dtype of Polyhal; expected one of bool_"):
        as_dtype(name)


@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_there_is_one_object_per_dtype(dtype: DType) -> None:
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert repr(dtype) == f"polyhal.{dtype.name}"
    assert dtype.itemsize == dtype.numpy.itemsize
    assert dtype.bits == 8 * dtype.itemsize


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=lambda d: d.name)
def test_finfo_is_ml_dtypes(dtype: DType) -> None:
    info, expected = dtypes.finfo(dtype), ml_dtypes.finfo(dtype.numpy)
    assert (info.eps, info.max, info.smallest_normal, info.bits) == (
        expected.eps,
        expected.max,
        expected.smallest_normal,
        dtype.bits,
    )
    with pytest.raises(TypeError, match="use finfo"):
        dtypes.iinfo(dtype)


@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=lambda d: d.name)
def test_iinfo_is_numpys(dtype: DType) -> None:
    info, expected = dtypes.iinfo(dtype), np.iinfo(dtype.numpy)
    assert (info.min, info.max, info.bits) == (expected.min, expected.max, dtype.bits)
    with pytest.raises(TypeError, match="use iinfo"):
        dtypes.finfo(dtype)
