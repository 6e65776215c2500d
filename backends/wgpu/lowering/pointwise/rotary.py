"""Rotation of pairs of features. Kernel: shaders/wgsl/pointwise/rotary.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.rotary import rotated_sizes, rotated_strides, unrotatable
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _rotary(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    x, cosines, sines = (s for s in inputs if isinstance(s, Spec))
    (out,) = outputs
    if refused := unrotatable(x, out):
        return refused
    if cosines.dtype is not sines.dtype:
        return Declined(f"cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    if too_large(runtime, x, cosines, sines, out):
        return OPERAND_TOO_LARGE
    size, strides = runtime.features.group_size, rotated_strides(x, cosines, sines)
    args: Arguments = {
        **{name: Tensor(i) for i, name in enumerate((*strides, "out"))},
        **{f"{name}_{axis}": step for name, own in strides.items() for axis, step in own.items()},
        **rotated_sizes(x),
    }
    variables = {
        "DTYPE": x.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "INTERLEAVED": bool(params["interleaved"]),
        "GROUP": size,
    }
    return runtime.launch("pointwise/rotary", variables, args, ceil_div(x.size // 2, size))


LOWERINGS: dict[str, LoweringFunction] = {"rotary": _rotary}
