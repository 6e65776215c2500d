"""Token ids drawn from rows of logits, in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.sampling import LARGEST_GROUP, OPERANDS, sampled_logits
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def group_size(runtime: Runtime) -> int:
    """Return the number of work-items that share a row."""
    return 1 if runtime.features.cpu else power_of_two_at_most(min(LARGEST_GROUP, runtime.features.max_group_size))


def _sample_tokens(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    logits = sampled_logits(inputs, outputs)
    if isinstance(logits, Declined):
        return logits
    rows, size = logits.shape
    group = group_size(runtime)
    args: Arguments = {
        **{name: Tensor(i) for i, name in enumerate(OPERANDS)},
        "weights": Workspace(len(OPERANDS)),
        "pitch": logits.strides[0],
        "size": size,
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": logits.dtype.name,
        "GROUP": group,
        "EXCHANGE": exchange(runtime, 4, group, group),
    }
    return runtime.launch(
        "rowwise/sample_tokens", definitions, args, (rows * group,), (group,), workspace=(4 * rows * size,)
    )


LOWERINGS: dict[str, LoweringFunction] = {"sample_tokens": _sample_tokens}
