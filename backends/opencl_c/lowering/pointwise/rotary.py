"""Rotation of pairs of features, in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
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
    if cosines.dtype is not sines.dtype or real_type(cosines.dtype) != real_type(x.dtype):
        return Declined(f"features of {x.dtype.name}, cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    half = x.shape[-1] // 2
    pairs = (*x.shape[:-1], half)

    def strided(index: int, strides: tuple[int, ...]) -> Strided:
        filled = (0,) * (len(_STRIDES) - x.ndim) + strides
        return Strided(Tensor(index), dict(zip(_STRIDES, filled, strict=True)))

    args: Arguments = {
        "x": strided(0, x.strides),
        "cosines": strided(1, broadcast_strides(cosines.shape, cosines.strides, pairs)),
        "sines": strided(2, broadcast_strides(sines.shape, sines.strides, pairs)),
        "out": Tensor(3),
        "size": x.size // 2,
        "half_": half,
        "rows": x.shape[-2],
        "b1": x.shape[-3] if x.ndim > 2 else 1,
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "REAL": real_type(x.dtype),
        "INTERLEAVED": bool(params["interleaved"]),
    }
    return runtime.launch("pointwise/rotary", definitions, args, (x.size // 2,), (runtime.features.group_size,))


LOWERINGS: dict[str, LoweringFunction] = {"rotary": _rotary}
