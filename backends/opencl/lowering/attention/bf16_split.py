"""Float32 operands of attention as sums of bfloat16 numbers, which tensor cores multiply: copies in workspaces."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.opencl.lowering.attention.arguments import Attention
from polyhal.backends.opencl.lowering.gemm.arguments import uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_PIECE = 8
"""Elements: rows begin at multiples of the largest copy's 16 bytes."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The launches that make the copies, the call that reads them, and the bytes of their workspaces."""

    launches: list[Launch]
    call: Attention
    workspace: tuple[int, ...]


def stage(runtime: Runtime, call: Attention, parts: int, place: int) -> Staged:
    """All operands as `parts` numbers each, in workspaces from `place` on."""
    shape = call.shape
    launches, specs, steps, workspace = [], [], [], []
    group = runtime.features.group_size
    for i, (name, spec) in enumerate(zip(call.names, call.specs, strict=True)):
        rows, features = spec.shape[-2:]
        pitch = round_up(features, _PIECE)
        lines, row = shape.count * rows, parts * pitch
        starts = (features, spec.strides[-2], *shape.batch_strides[i])
        whole = spec.aligned and spec.strides[-1] == 1 and all(n % _PIECE == 0 for n in starts)
        launch = runtime.launch(
            "attention_parts", "attention/bf16_split", {"PARTS": parts, "WHOLE": whole},
            [
                Tensor(i), Workspace(place + i), *uints(lines, rows, features, pitch), *call.batches(),
                *call.strides(name),
            ],
            (round_up(lines * pitch // _PIECE, group),), (group,),
        )  # fmt: skip
        launches.append(launch)
        specs.append(Spec(dtypes.bfloat16, (shape.count, rows, pitch), (rows * row, row, 1), True))
        steps.append((shape.batch[1] * shape.batch[2] * rows * row, shape.batch[2] * rows * row, rows * row))
        workspace.append(lines * row * dtypes.bfloat16.itemsize)
    others = shape.batch_strides[len(call.names) :]
    staged = replace(call, specs=tuple(specs), shape=replace(shape, batch_strides=(*steps, *others)), staged=place)
    return Staged(launches, staged, tuple(workspace))
