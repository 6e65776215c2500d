"""Rotation of pairs of features, in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.rotary import rotated_sizes, rotated_strides, unrotatable
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.lowering.support.vectors import vector_of
from polyhal.backends.opencl_c.runtime import Runtime
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
    if cosines.dtype is not sines.dtype or real_type(cosines.dtype) != real_type(x.dtype):
        return Declined(f"features of {x.dtype.name}, cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    strides = rotated_strides(x, cosines, sines)
    args: Arguments = {
        **{name: Strided(Tensor(i), own) for i, (name, own) in enumerate(strides.items())},
        "out": Tensor(3),
        **rotated_sizes(x),
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "REAL": real_type(x.dtype),
        "INTERLEAVED": bool(params["interleaved"]),
    }
    together = not params["interleaved"] and all(own["column"] == 1 for own in strides.values())
    width = vector_of(runtime, x.dtype, x.shape[-1] // 2) if together else 1
    if width > 1:
        definitions["WIDTH"] = width
    items = x.size // 2 // width
    return runtime.launch("pointwise/rotary", definitions, args, (items,), (runtime.features.group_size,))


LOWERINGS: dict[str, LoweringFunction] = {"rotary": _rotary}
