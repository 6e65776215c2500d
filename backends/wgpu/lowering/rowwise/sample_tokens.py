"""Token ids drawn from rows of logits. Kernel: shaders/wgsl/rowwise/sample_tokens.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_OPERANDS = ("logits", "temperature", "top_k", "top_p", "min_p", "typical_p", "seeds", "counters", "out")
_LARGEST_GROUP = 512
"""Maximum number of invocations that share a row on a GPU."""
_BISECTIONS = 32
"""Loops over a row within one loop."""


def _group(runtime: Runtime, size: int) -> int:
    """Return the number of invocations that share a row."""
    features = runtime.features
    largest = power_of_two_at_most(features.max_group_size)
    group = min(features.group_size if features.cpu else _LARGEST_GROUP, largest)
    limit = features.quirks.loop_limit
    while limit and _BISECTIONS * ceil_div(size, group) > limit and group < largest:
        group *= 2
    return group


def _sample_tokens(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    specs = [x for x in (*inputs, *outputs) if isinstance(x, Spec)]
    logits = specs[0]
    if logits.dtype is dtypes.float64 or any(
        s.dtype not in (dtypes.float32, dtypes.int32) or not s.is_contiguous for s in specs[1:]
    ):
        return Declined("logits of float64, or parameters that are not contiguous float32")
    rows, size = logits.shape
    if logits.strides[1] != 1 or size >= 1 << 24:
        return Declined("logits that are not contiguous, or 2^24 tokens or more")
    if (buffers := len(_OPERANDS) + 1) > runtime.features.max_buffers:
        return Declined(f"the kernel has {buffers} buffers; the device supports {runtime.features.max_buffers}")
    if too_large(runtime, logits):
        return OPERAND_TOO_LARGE
    group = _group(runtime, size)
    args: Arguments = {
        **{name: Tensor(i) for i, name in enumerate(_OPERANDS)},
        "weights": Workspace(len(_OPERANDS)),
        "pitch": logits.strides[0],
        "rows": rows,
        "size": size,
    }
    variables = {**group_reduce.definitions(runtime, group, group), "DTYPE": logits.dtype.name}
    return runtime.launch("rowwise/sample_tokens", variables, args, rows, workspace=(4 * rows * size,))


LOWERINGS: dict[str, LoweringFunction] = {"sample_tokens": _sample_tokens}
