"""Windows of memory and rows of tables: reads and writes by constant or computed positions."""

from __future__ import annotations

import numpy as np

from polyhal.hal import dtypes
from polyhal.onnx.exporting.writer import ExportedOp, Name, exported


@exported("window")
def window(call: ExportedOp) -> Name:
    """Write a gather of the window's elements from the flat tensor."""
    flat = call.reshape(call.name(), (-1,))
    return call.write("Gather", flat, call.constant(_places(call)), axis=0)


@exported("overwrite")
def overwrite(call: ExportedOp) -> Name:
    """Write a scatter of a value into the flat tensor, as an assignment to a slice makes it."""
    places = _places(call).reshape(-1)
    value = call.name(1, call.dtype())
    if call.shape(1) != tuple(call.params["shape"]):  # a number
        value = call.write("Expand", value, call.constant(places.shape))
    flat, values = call.reshape(call.name(), (-1,)), call.reshape(value, (-1,))
    written = call.write("ScatterElements", flat, call.constant(places), values, axis=0)
    return call.reshape(written, call.shape())


def _places(call: ExportedOp) -> np.ndarray:
    """Return the positions of a window's elements in the flat tensor."""
    p = call.params
    places = np.array(p["offset"])
    for length, stride in zip(p["shape"], p["strides"], strict=True):
        places = places[..., None] + np.arange(length) * stride
    return places


@exported("scatter_rows")
def scatter_rows(call: ExportedOp) -> Name:
    """Write a scatter that adds rows to a table of zeros. Its last row, which is cut off, takes those that are skipped."""
    rows, width = call.outputs[0].shape
    index = call.name(1, dtypes.int64)
    at_least, below = (call.write(op, index, call.constant(n)) for op, n in (("GreaterOrEqual", 0), ("Less", rows)))
    kept = call.write("Where", call.write("And", at_least, below), index, call.constant(rows))
    zeros = call.write("Expand", call.constant(0, call.dtype()), call.constant((rows + 1, width)))
    places = call.write("Unsqueeze", kept, call.constant([-1]))
    table = call.write("ScatterND", zeros, places, call.name(0), reduction="add")
    return call.write("Slice", table, call.constant([0]), call.constant([rows]), call.constant([0]))
