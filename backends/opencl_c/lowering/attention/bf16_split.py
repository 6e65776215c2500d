"""bf16x3: float32 operands of attention as sums of bfloat16 terms in workspaces, for tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Workspace
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_VECTOR = 8
"""Elements of the widest copy, 16 bytes: rows of the copies begin at multiples of it."""


@dataclass(frozen=True, slots=True)
class SplitCall:
    """A call on split operands, the launches that split them, and the bytes of their workspaces."""

    launches: list[Launch]
    call: AttentionCall
    workspace: tuple[int, ...]


def split_operands(runtime: Runtime, call: AttentionCall, terms: int, first: int) -> SplitCall:
    """Split every operand into `terms` bfloat16 terms per element, in workspaces, the first at index `first`."""
    shape = call.shape
    launches, specs, strides, workspace = [], [], [], []
    group = runtime.features.group_size
    for i, (name, spec) in enumerate(zip(call.names, call.specs, strict=True)):
        rows, features = spec.shape[-2:]
        pitch = round_up(features, _VECTOR)
        lines, row = shape.count * rows, terms * pitch
        starts = (features, spec.strides[-2], *shape.batch_strides[i])
        aligned = spec.aligned and spec.strides[-1] == 1 and all(n % _VECTOR == 0 for n in starts)
        launch = runtime.launch(
            "attention/bf16_split",
            {"BF16_TERMS": terms, "ALIGNED_ROWS": aligned},
            {
                "x": call.place(i),
                "terms": Workspace(first + i),
                "count": lines,
                "rows": rows,
                "features": features,
                "pitch": pitch,
                **call.batch(),
                **call.strides(name, "x"),
            },
            (round_up(lines * pitch // _VECTOR, group),),
            (group,),
        )
        launches.append(launch)
        specs.append(Spec(dtypes.bfloat16, (shape.count, rows, pitch), (rows * row, row, 1), True))
        strides.append((shape.batch[1] * shape.batch[2] * rows * row, shape.batch[2] * rows * row, rows * row))
        workspace.append(lines * row * dtypes.bfloat16.itemsize)
    others = shape.batch_strides[len(call.names) :]
    split_shape = replace(shape, batch_strides=(*strides, *others))
    memory = tuple(Workspace(first + i) for i in range(len(specs)))
    return SplitCall(launches, replace(call, specs=tuple(specs), shape=split_shape, memory=memory), tuple(workspace))
