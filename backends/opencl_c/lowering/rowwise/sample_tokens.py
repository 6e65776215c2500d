"""Token ids drawn from rows of logits, in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_OPERANDS = ("logits", "temperature", "top_k", "top_p", "min_p", "typical_p", "seeds", "counters", "out")
_LARGEST_GROUP = 512
"""Maximum number of work-items that share a row on a GPU."""


def group_size(runtime: Runtime) -> int:
    """Return the number of work-items that share a row."""
    return 1 if runtime.features.cpu else power_of_two_at_most(min(_LARGEST_GROUP, runtime.features.max_group_size))


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
    group = group_size(runtime)
    args: Arguments = {
        **{name: Tensor(i) for i, name in enumerate(_OPERANDS)},
        "weights": Workspace(len(_OPERANDS)),
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
