"""Token ids drawn from rows of logits. Kernel: shaders/wgsl/rowwise/sample_tokens.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.sampling import LARGEST_GROUP, OPERANDS, sampled_logits
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_BISECTIONS = 32
"""Loops over a row within one loop."""


def _group(runtime: Runtime, size: int) -> int:
    """Return the number of invocations that share a row."""
    features = runtime.features
    largest = power_of_two_at_most(features.max_group_size)
    group = min(features.group_size if features.cpu else LARGEST_GROUP, largest)
    limit = features.quirks.loop_limit
    while limit and _BISECTIONS * ceil_div(size, group) > limit and group < largest:
        group *= 2
    return group


def _sample_tokens(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    logits = sampled_logits(inputs, outputs)
    if isinstance(logits, Declined):
        return logits
    rows, size = logits.shape
    if (buffers := len(OPERANDS) + 1) > runtime.features.max_buffers:
        return Declined(f"the kernel has {buffers} buffers; the device supports {runtime.features.max_buffers}")
    if too_large(runtime, logits):
        return OPERAND_TOO_LARGE
    group = _group(runtime, size)
    args: Arguments = {
        **{name: Tensor(i) for i, name in enumerate(OPERANDS)},
        "weights": Workspace(len(OPERANDS)),
        "pitch": logits.strides[0],
        "rows": rows,
        "size": size,
    }
    variables = {**group_reduce.definitions(runtime, group, group), "DTYPE": logits.dtype.name}
    return runtime.launch("rowwise/sample_tokens", variables, args, rows, workspace=(4 * rows * size,))


LOWERINGS: dict[str, LoweringFunction] = {"sample_tokens": _sample_tokens}
