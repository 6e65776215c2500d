"""Reductions, positions and cumulative sums."""

from __future__ import annotations

from functools import partial

from polyhal.hal import dtypes
from polyhal.onnx.exporting.writer import ExportedOp, Name, exported

_REDUCTIONS = {
    "logsumexp": "ReduceLogSumExp",
    "max": "ReduceMax",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
}


def _axes(call: ExportedOp) -> tuple[int, ...]:
    axis, ndim = call.params["axis"], len(call.shape())
    chosen = tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(a % ndim for a in chosen) if ndim else ()


def _reduced(call: ExportedOp, op: str, name: Name) -> Name:
    axes = _axes(call)
    if not axes:
        return call.write("Identity", name)
    return call.write(op, name, call.constant(axes), keepdims=int(call.params["keepdims"]))


def _reduction(op: str, call: ExportedOp) -> Name:
    return _reduced(call, op, call.name(0, call.outputs[0].dtype))


def _register() -> None:
    for name, op in _REDUCTIONS.items():
        exported(name)(partial(_reduction, op))


def _truth(op: str) -> None:
    def write(call: ExportedOp) -> Name:
        found = _reduced(call, op, call.name(0, dtypes.int32))
        return call.cast(found, dtypes.bool_)

    exported({"ReduceMax": "any", "ReduceMin": "all"}[op])(write)


def _positions(op: str) -> None:
    def write(call: ExportedOp) -> Name:
        axes, keep = _axes(call), bool(call.params["keepdims"])
        x = call.name()
        if len(axes) == 1:
            found = call.write(op, x, axis=axes[0], keepdims=int(keep))
        else:
            found = call.write(op, call.reshape(x, (-1,)), axis=0, keepdims=0)
            found = call.reshape(found, call.outputs[0].shape)
        return found if call.outputs[0].dtype is dtypes.int64 else call.cast(found, call.outputs[0].dtype)

    exported(op.lower())(write)


@exported("cumsum")
def cumsum(call: ExportedOp) -> Name:
    """Write a cumulative sum."""
    axis = call.params["axis"]
    return call.write("CumSum", call.name(0, call.outputs[0].dtype), call.constant(axis))


@exported("topk")
def topk(call: ExportedOp) -> tuple[Name, ...]:
    """Write the greatest or smallest elements and their positions."""
    p = call.params
    inputs = [call.name(), call.constant([p["k"]])]
    flags = {"largest": int(p["largest"]), "sorted": int(p["sorted"])}
    values, places = call.writer.add("TopK", inputs, 2, {"axis": p["axis"], **flags})
    dtype = call.outputs[1].dtype
    return values, places if dtype is dtypes.int64 else call.cast(places, dtype)


@exported("sort_pairs")
def sort_pairs(call: ExportedOp) -> tuple[Name, ...]:
    """Write all elements in order, and their positions."""
    axis, descending = call.params["axis"], call.params["descending"]
    inputs = [call.name(), call.constant([call.shape()[axis]])]
    values, places = call.writer.add("TopK", inputs, 2, {"axis": axis, "largest": int(descending), "sorted": 1})
    dtype = call.outputs[1].dtype
    return values, places if dtype is dtypes.int64 else call.cast(places, dtype)


_register()
for _op in ("ReduceMax", "ReduceMin"):
    _truth(_op)
for _op in ("ArgMax", "ArgMin"):
    _positions(_op)
