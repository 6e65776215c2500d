"""Queries and keys rotated, and keys and values stored in a cache. Kernel: shaders/opencl/attention/rotary_store.cl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.common.problems.rotary import STRIDES, several_dtypes, stored_pairs, stored_sizes
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_Q, _K, _V, _LENGTHS, _COSINES, _SINES, _OUT = range(2, 9)
"""Positions in the argument list; the cache, which results replace, is 0 and 1."""


def rotary_store(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `rotary_store`."""
    cached, _, q, k, v, lengths, cosines, sines = (s for s in inputs if isinstance(s, Spec))
    if not all(out.is_contiguous for out in outputs) or max(s.size for s in (q, k, *outputs)) >= 1 << 31:
        return Declined("results that are not contiguous, or 2^31 elements or more")
    if refused := several_dtypes(q, k, v, outputs):
        return refused
    if cosines.dtype is not sines.dtype or len({real_type(s.dtype) for s in (q, cached, cosines)}) > 1:
        return Declined(f"queries of {q.dtype.name}, cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")

    def strided(place: int, spec: Spec) -> Strided:
        return Strided(Tensor(place), dict(zip(STRIDES, spec.strides, strict=True)))

    def angles(place: int, spec: Spec) -> Strided:
        b0, _, row, column = broadcast_strides(spec.shape, spec.strides, (q.shape[0], 1, q.shape[2], cosines.shape[-1]))
        return Strided(Tensor(place), {"b0": b0, "row": row, "column": column})

    args: Arguments = {
        "q": strided(_Q, q),
        "k": strided(_K, k),
        "v": strided(_V, v),
        "lengths": Strided(Tensor(_LENGTHS), {"step": lengths.strides[0]}),
        "cosines": angles(_COSINES, cosines),
        "sines": angles(_SINES, sines),
        "keys": Tensor(_OUT),
        "values": Tensor(_OUT + 1),
        "out": Tensor(_OUT + 2),
        **stored_sizes(q, k, cached, cosines),
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": cached.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "REAL": real_type(q.dtype),
        "INTERLEAVED": bool(params["interleaved"]),
    }
    launch = runtime.launch(
        "attention/rotary_store", definitions, args, (stored_pairs(q, k),), (runtime.features.group_size,)
    )
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0), (1, 1)], inputs, outputs)
    return LaunchSequence((copied, launch))
