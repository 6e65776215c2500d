"""Copies between any strides and dtypes, and fills: `copy` and `fill` of the contract.

Transpositions have separate kernels: shaders/wgsl/pointwise/transpose_local.wgsl and cpu_transpose.wgsl.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import transpose
from polyhal.backends.wgpu.lowering.pointwise.elementwise import group
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.protocol import Launch

LOWERINGS: dict[str, LoweringFunction] = {}

_LOCAL_TILE, _BLOCK = 32, 4
_BLOCKS_PER_GROUP = 64
_LOCAL_GROUP = 256
_ELEMENTS = {4: "u32", 8: "vec2<u32>"}


def copy(runtime: Runtime, source: Spec, target: Spec) -> Launch:
    """Return a launch (source, target) for equal shapes of any strides and dtypes."""
    return _transpose(runtime, source, target) or group(runtime, (source,), (target,), (), (0,))


def fill(runtime: Runtime, target: Spec) -> Launch:
    """Return a launch (number, target) for any strides."""
    number = dtypes.float32 if target.dtype.kind == "float" else target.dtype
    return group(runtime, (ScalarSpec(number),), (target,), (), (0,))


def _transpose(runtime: Runtime, source: Spec, target: Spec) -> Launch | None:
    """Return the launch of a tiled kernel if the copy is a transposition, else None."""
    t = transpose.match(source, target)
    element = (
        "f16" if source.dtype is dtypes.float16 and runtime.features.float16 else _ELEMENTS.get(source.dtype.itemsize)
    )
    if t is None or element is None or too_large(runtime, source, target):
        return None
    tiles = t.tiles(_BLOCK if runtime.features.cpu else _LOCAL_TILE)
    (source0, source1), (target0, target1) = t.source_batch, t.target_batch
    args: Arguments = {
        "src": Tensor(0),
        "dest": Tensor(1),
        "rows": t.rows,
        "columns": t.columns,
        "source_step": t.source_step,
        "target_step": t.target_step,
        "batch1": t.batch[1],
        "source0": source0,
        "source1": source1,
        "target0": target0,
        "target1": target1,
        "tiles": tiles,
    }
    if runtime.features.cpu:
        definitions = {"ELEMENT": element, "SIZE": _BLOCK}
        groups = ceil_div(tiles, _BLOCKS_PER_GROUP)
        return runtime.launch("pointwise/cpu_transpose", definitions, args, groups)
    definitions = {"ELEMENT": element, "GROUP": min(_LOCAL_GROUP, runtime.features.max_group_size)}
    return runtime.launch("pointwise/transpose_local", definitions, args, tiles)
