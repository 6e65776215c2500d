"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems import transpose
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Launch
from polyhal_cupy.lowering.pointwise.elementwise import group
from polyhal_cupy.runtime import Runtime

_ELEMENTS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_TILE, _BLOCK = 32, 256


def copy(runtime: Runtime, source: Spec, target: Spec, places: tuple[int, int] = (0, 1)) -> Launch:
    """Return a launch for equal shapes of any strides and dtypes; `places` are the argument indices of source and target."""
    return _transpose(runtime, source, target, places) or group(runtime, (source,), (target,), (), (0,), places)


def fill(runtime: Runtime, target: Spec) -> Launch:
    """Return a launch (number, target) for any strides."""
    return group(runtime, (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def number_dtype(dtype: DType) -> DType:
    """Return the dtype in which a Python number is passed to a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype


def _transpose(runtime: Runtime, source: Spec, target: Spec, places: tuple[int, int]) -> Launch | None:
    """Return the launch of a tiled kernel if the copy is a transposition, else None."""
    t = transpose.match(source, target)
    if t is None or max(t.rows, t.columns) >= 1 << 31:
        return None
    (source_b0, source_b1), (target_b0, target_b1) = t.source_batch, t.target_batch
    args: Arguments = {
        "x": Strided(Tensor(places[0]), {"column": t.source_step, "b0": source_b0, "b1": source_b1}),
        "out": Strided(Tensor(places[1]), {"row": t.target_step, "b0": target_b0, "b1": target_b1}),
        "rows": t.rows, "columns": t.columns, "b1": t.batch[1],
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "ELEMENT": _ELEMENTS[source.dtype.itemsize], "TILE": _TILE, "BLOCK": _BLOCK
    }  # fmt: skip
    return runtime.launch("transpose", "pointwise/transpose", definitions, args, t.tiles(_TILE), _BLOCK)
