"""Rotation of pairs of features. Kernel: shaders/wgsl/pointwise/rotary.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_STRIDES = ("b0", "b1", "row", "column")


def _rotary(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    x, cosines, sines = (s for s in inputs if isinstance(s, Spec))
    (out,) = outputs
    if x.ndim > len(_STRIDES) or not out.is_contiguous or x.size >= 1 << 31:
        return Declined(f"more than {len(_STRIDES)} axes, 2^31 elements or more, or a result that is not contiguous")
    if cosines.dtype is not sines.dtype:
        return Declined(f"cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    if too_large(runtime, x, cosines, sines, out):
        return OPERAND_TOO_LARGE
    half, size = x.shape[-1] // 2, runtime.features.group_size
    pairs = (*x.shape[:-1], half)

    def strides(name: str, values: tuple[int, ...]) -> dict[str, int]:
        filled = (0,) * (len(_STRIDES) - x.ndim) + values
        return {f"{name}_{axis}": stride for axis, stride in zip(_STRIDES, filled, strict=True)}

    args: Arguments = {
        "x": Tensor(0),
        "cosines": Tensor(1),
        "sines": Tensor(2),
        "out": Tensor(3),
        **strides("x", x.strides),
        **strides("cosines", broadcast_strides(cosines.shape, cosines.strides, pairs)),
        **strides("sines", broadcast_strides(sines.shape, sines.strides, pairs)),
        "size": x.size // 2,
        "half_": half,
        "rows": x.shape[-2],
        "b1": x.shape[-3] if x.ndim > 2 else 1,
    }
    variables = {
        "DTYPE": x.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "INTERLEAVED": bool(params["interleaved"]),
        "GROUP": size,
    }
    return runtime.launch("pointwise/rotary", variables, args, ceil_div(x.size // 2, size))


LOWERINGS: dict[str, LoweringFunction] = {"rotary": _rotary}
