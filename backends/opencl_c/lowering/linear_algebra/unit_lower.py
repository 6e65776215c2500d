"""Lower triangles with ones on the diagonal: the vectors of Householder reflections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.linear_algebra import matrix_batch
from polyhal.backends.opencl_c.lowering.linear_algebra.groups import batch_args
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _unit_lower(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    a = inputs[0]
    assert isinstance(a, Spec)
    batch, (rows, columns) = matrix_batch([a], a.shape[:-2]), a.shape[-2:]
    if isinstance(batch, Declined):
        return batch
    group = runtime.features.group_size
    return runtime.launch(
        "linear_algebra/unit_lower",
        {"DTYPE": a.dtype.name},
        {
            "a": Tensor(0),
            "out": Tensor(1),
            **batch_args(batch, "a"),
            "size": a.size,
            "rows": rows,
            "columns": columns,
        },
        (a.size,),
        (group,),
    )


LOWERINGS = {"unit_lower": _unit_lower}
