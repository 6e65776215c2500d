"""Copies between any layouts with a cast, and fills: `copy` and `fill` of the contract."""

from __future__ import annotations

from polyhal.backends.common.problems import transpose
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Launch, SimpleLaunch
from polyhal_cupy.launch import longs, pointers, uints
from polyhal_cupy.lowering.pointwise.elementwise import group
from polyhal_cupy.runtime import Runtime

_UNITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_TILE, _BLOCK = 32, 256


def copy(runtime: Runtime, source: Spec, target: Spec, places: tuple[int, int] = (0, 1)) -> Launch:
    """A launch for equal shapes of any strides and dtypes; `places` are those of source and target among its arguments."""
    return _transpose(runtime, source, target, places) or group(runtime, "copy", (source,), (target,), (), (0,), places)


def fill(runtime: Runtime, target: Spec) -> Launch:
    """A launch (number, target) for any strides."""
    return group(runtime, "fill", (ScalarSpec(number_dtype(target.dtype)),), (target,), (), (0,))


def zero(runtime: Runtime, target: Spec, place: int) -> Launch:
    """A launch that writes zeros to the tensor at `place`, whatever comes before it."""
    launch = fill(runtime, target)
    return SimpleLaunch("fill", lambda *args: launch(0, args[place]))


def number_dtype(dtype: DType) -> DType:
    """The dtype in which a Python number reaches a kernel that stores `dtype`."""
    return dtypes.float32 if dtype.kind == "float" and dtype is not dtypes.float64 else dtype


def _transpose(runtime: Runtime, source: Spec, target: Spec, places: tuple[int, int]) -> Launch | None:
    """A tiled kernel where the source's neighbours lie along another axis than the target's, or None."""
    found = transpose.match(source, target)
    if found is None or max(found.rows, found.columns) >= 1 << 31:
        return None
    parameters = [
        *pointers(*places), *uints(found.rows, found.columns), *longs(found.source_step, found.target_step),
        *uints(found.batch[1]), *longs(*found.source_batch, *found.target_batch),
    ]  # fmt: skip
    definitions: dict[str, str | int | bool] = {"UNIT": _UNITS[source.dtype.itemsize], "TILE": _TILE, "BLOCK": _BLOCK}
    return runtime.launch("transpose", "pointwise/transpose", definitions, parameters, found.tiles(_TILE), _BLOCK)
