"""New tensors: constants, ranges, diagonals, triangles, windows."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, message
from polyhal.onnx.element_types import device_dtype, numpy_dtype
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


@operator("Constant", raw=True)
def constant(
    *,
    value: Value = None,
    sparse_value: Value = None,
    value_float: float | None = None,
    value_floats: Value = None,
    value_int: int | None = None,
    value_ints: Value = None,
    value_string: Value = None,
    value_strings: Value = None,
) -> Any:
    floats = next((v for v in (value_float, value_floats) if v is not None), None)
    whole = next((v for v in (value_int, value_ints) if v is not None), None)
    texts = next((v for v in (value_string, value_strings) if v is not None), None)
    if floats is not None:
        return np.array(floats, np.float32)
    if whole is not None:
        return np.array(whole, np.int64)
    if texts is not None:
        return np.array(texts, object)
    tensor = value if value is not None else sparse_value
    if tensor is None:
        problem = "a Constant has no value, as if a call of a function left out a required attribute"
        raise CorruptFileError(message("onnx", problem, fix="check the model by onnx.checker.check_model"))
    return tensor


@operator("ConstantOfShape", host=("shape",))
def constant_of_shape(shape: Value, *, value: Value = None, node: NodeFacts) -> Any:
    element = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    dtype = device_dtype(element.dtype)
    return ph.full(integers(shape), element[0].item(), dtype=dtype, device=node.device)


@operator("Range", host=("start", "limit", "delta"))
def range_(start: Value, limit: Value, delta: Value, *, stash_type: int = 1, node: NodeFacts) -> Any:
    a, b, s = (np.asarray(v).item() for v in (start, limit, delta))
    count = max(int(np.ceil((b - a) / s)), 0)
    values = a + np.arange(count) * s if isinstance(a, int) else a + np.arange(count, dtype=np.float64) * s
    return values.astype(np.asarray(start).dtype)


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    found = None if dtype is None else numpy_dtype(dtype)
    target = x.dtype if found is None else device_dtype(found)
    return ph.tensor(np.eye(rows, columns, k, np.float32), device=x.device).to(target)


@operator("Trilu", host=("k",))
def trilu(x: Tensor, k: Value = None, *, upper: int = 1) -> Any:
    diagonal = 0 if k is None else integers(k)[0]
    return ph.triu(x, diagonal) if upper else ph.tril(x, diagonal)


def _window(size: Value, periodic: int, terms: tuple[float, ...], output_datatype: int) -> np.ndarray:
    """Return a window that is a sum of cosines."""
    length = integers(size)[0]
    angles = 2 * np.pi * np.arange(length) / (length if periodic else max(length - 1, 1))
    values: np.ndarray = sum(t * np.cos(i * angles) for i, t in enumerate(terms))  # type: ignore[assignment]
    return values.astype(numpy_dtype(output_datatype))


@operator("HannWindow", host=("size",), foldable=False)
def hann_window(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    return _window(size, periodic, (0.5, -0.5), output_datatype)


@operator("HammingWindow", host=("size",), foldable=False)
def hamming_window(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    return _window(size, periodic, (25 / 46, -21 / 46), output_datatype)


@operator("BlackmanWindow", host=("size",), foldable=False)
def blackman_window(size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    return _window(size, periodic, (0.42, -0.5, 0.08), output_datatype)


@operator("MelWeightMatrix", host=("bins", "length", "rate", "low", "high"), foldable=False)
def mel_weights(bins: Value, length: Value, rate: Value, low: Value, high: Value, *, output_datatype: int = 1) -> Any:
    count, size, sampling = (integers(v)[0] for v in (bins, length, rate))
    mel = [2595 * np.log10(1 + np.asarray(v, np.float64).item() / 700) for v in (low, high)]
    points = mel[0] + np.arange(count + 2) * ((mel[1] - mel[0]) / (count + 2))
    places = np.floor((size + 1) * (700 * (10 ** (points / 2595) - 1)) / sampling).astype(np.int64)
    result = np.zeros((size // 2 + 1, count))
    for i in range(count):
        first, middle, last = places[i : i + 3]
        if middle == first:
            result[middle, i] = 1
        else:
            result[first : middle + 1, i] = (np.arange(first, middle + 1) - first) / (middle - first)
        if last != middle:
            result[middle:last, i] = (last - np.arange(middle, last)) / (last - middle)
    return result.astype(numpy_dtype(output_datatype))
