"""ONNX's element types, and their dtypes in NumPy and Polyhal."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

_NUMPY = {
    number: np.dtype(tensor_dtype_to_np_dtype(number))
    for number in TensorProto.DataType.values()
    if number != TensorProto.UNDEFINED
}
_POLYHAL = {d.numpy: d for d in (*dtypes.ALL, *dtypes.COMPLEX)}


def name_of(element_type: int) -> str:
    """Return ONNX's name of an element type, such as FLOAT."""
    return TensorProto.DataType.Name(element_type) if element_type in _NUMPY else f"number {element_type}"


def numpy_dtype(element_type: int) -> np.dtype | None:
    """Return NumPy's dtype of an element type (object for strings), None if there is none."""
    return _NUMPY.get(element_type)


def device_dtype(dtype: np.dtype) -> DType | None:
    """Return the dtype of tensors that store elements of a NumPy dtype; None if no device stores them."""
    return _POLYHAL.get(dtype)


def bits_of(element_type: int) -> int:
    """Return the size of an element in ONNX's files."""
    name = name_of(element_type)
    packed = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
    dtype = numpy_dtype(element_type)
    return packed.get(name, 8 * (dtype.itemsize if dtype is not None else 1))
