"""Views, copies and new tensors."""

from __future__ import annotations

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.nn.resample_tables import Method, resampling_band
from polyhal.onnx.exporting.writer import ExportedOp, Name, exported


@exported("reshape")
def reshape(call: ExportedOp) -> Name:
    """Write a reshape."""
    shape = call.outputs[0].shape
    return call.write("Reshape", call.name(), call.constant(shape), allowzero=int(0 in shape))


@exported("permute")
def permute(call: ExportedOp) -> Name:
    """Write a transposition."""
    return call.write("Transpose", call.name(), perm=list(call.params["axes"]))


@exported("broadcast_to")
def broadcast_to(call: ExportedOp) -> Name:
    """Write a broadcast."""
    return call.write("Expand", call.name(), call.constant(call.outputs[0].shape))


@exported("slice")
def slice_(call: ExportedOp) -> Name:
    """Write a slice; axes that stay whole are left out."""
    p = call.params
    starts, ends, axes, steps = [], [], [], []
    for axis, (first, count, step) in enumerate(zip(p["starts"], p["lengths"], p["steps"], strict=True)):
        if first == 0 and step == 1 and count == call.shape()[axis]:
            continue
        end = first + count * step
        starts.append(first)
        ends.append(end if end >= 0 else np.iinfo(np.int64).min + 1)
        axes.append(axis)
        steps.append(step)
    if not axes:
        return call.write("Identity", call.name())
    return call.write("Slice", call.name(), *map(call.constant, (starts, ends, axes, steps)))


@exported("pad")
def pad(call: ExportedOp) -> Name:
    """Write padding with a number."""
    widths = call.params["widths"]
    pads = [b for b, _ in widths] + [a for _, a in widths]
    return call.write("Pad", call.name(), call.constant(pads), call.constant(call.params["value"], call.dtype()))


@exported("concat")
def concat(call: ExportedOp) -> Name:
    """Write a concatenation."""
    dtype = call.outputs[0].dtype
    return call.write("Concat", *(call.name(i, dtype) for i in range(call.count)), axis=call.params["axis"])


def _triangle(name: str, upper: int) -> None:
    def write(call: ExportedOp) -> Name:
        return call.write("Trilu", call.name(), call.constant(call.params["diagonal"]), upper=upper)

    exported(name)(write)


@exported("full")
def full(call: ExportedOp) -> Name:
    """Write a tensor of equal elements."""
    spec = call.outputs[0]
    value = call.constant(call.params["value"], spec.dtype)
    return call.write("Expand", value, call.constant(spec.shape))


@exported("arange")
def arange(call: ExportedOp) -> Name:
    """Write a sequence of numbers as a constant."""
    p, spec = call.params, call.outputs[0]
    return call.constant(p["start"] + np.arange(spec.shape[0]) * p["step"], spec.dtype)


@exported("embedding")
def embedding(call: ExportedOp) -> Name:
    """Write a gather of rows."""
    return call.write("Gather", call.name(0), call.name(1, _index(call, 1)), axis=0)


@exported("take_along_axis")
def take_along_axis(call: ExportedOp) -> Name:
    """Write a gather of elements."""
    return call.write("GatherElements", call.name(0), call.name(1, _index(call, 1)), axis=call.params["axis"])


def _index(call: ExportedOp, operand: int) -> dtypes.DType:
    """Return the dtype in which ONNX accepts an index."""
    dtype = call.dtype(operand)
    return dtype if dtype in (dtypes.int32, dtypes.int64) else dtypes.int64


_triangle("tril", 0)
_triangle("triu", 1)


@exported("windows")
def windows(call: ExportedOp) -> Name:
    """Write gathers of the elements of sliding windows, whose axes then move to the end."""
    p, name, ndim = call.params, call.name(), len(call.shape())
    count = len(p["kernel"])
    for i, (k, s, d) in enumerate(zip(p["kernel"], p["stride"], p["dilation"], strict=True)):
        results = call.outputs[0].shape[ndim - count + i]
        places = np.arange(results)[:, None] * s + np.arange(k) * d
        name = call.write("Gather", name, call.constant(places), axis=ndim - count + 2 * i)
    first = ndim - count
    order = [*range(first), *range(first, first + 2 * count, 2), *range(first + 1, first + 2 * count, 2)]
    return call.write("Transpose", name, perm=order)


@exported("resample")
def resample(call: ExportedOp) -> Name:
    """Write a product along an axis with a matrix of weights."""
    p, ndim = call.params, len(call.shape())
    axis = p["axis"] % ndim
    order = [a for a in range(ndim) if a != axis] + [axis]
    back = [order.index(a) for a in range(ndim)]
    last = call.write("Transpose", call.name(), perm=order)
    matrix = _weights(call, p["method"], call.shape()[axis], p["length"], p["transposed"])
    return call.write("Transpose", call.write("MatMul", last, call.constant(matrix.T, call.dtype())), perm=back)


@exported("resample_planes")
def resample_planes(call: ExportedOp) -> Name:
    """Write products of the last two axes with matrices of weights."""
    p, shape = call.params, call.shape()[-2:]
    left, right = (
        _weights(call, m, n, r, p["transposed"]) for m, n, r in zip(p["methods"], shape, p["lengths"], strict=True)
    )
    product = call.write("MatMul", call.name(), call.constant(right.T, call.dtype()))
    return call.write("MatMul", call.constant(left, call.dtype()), product)


def _weights(call: ExportedOp, method: Method, length: int, result: int, transposed: bool) -> np.ndarray:
    """Return the matrix that resamples an axis."""
    first, weights = resampling_band(
        Method(*method), *((result, length) if transposed else (length, result)), transposed
    )
    matrix = np.zeros((result, length))
    rows = np.arange(result)[:, None]
    np.add.at(matrix, (rows, np.minimum(first[:, None] + np.arange(weights.shape[1]), length - 1)), weights)
    return matrix


@exported("broadcast_scalar")
def broadcast_scalar(call: ExportedOp) -> Name:
    """Write a tensor whose elements are one number that is computed."""
    return call.write("Expand", call.name(0, call.outputs[0].dtype), call.constant(call.outputs[0].shape))
