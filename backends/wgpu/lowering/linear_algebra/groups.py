"""Workgroups that each have one small matrix in workgroup memory (shaders/wgsl/linear_algebra/matrices.wgsl)."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Argument, Arguments, Tensor
from polyhal.backends.common.problems.linear_algebra import SMALL, MatrixBatch
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.backends.wgpu.shader import Definitions
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_MIN_GROUP = 32


def group_size(runtime: Runtime, size: int) -> int:
    """Return the invocations of a workgroup for matrices of up to `size` rows: one per row."""
    return min(max(_MIN_GROUP, size), SMALL, runtime.features.max_group_size)


def batch_args(batch: MatrixBatch, *names: str) -> dict[str, Argument]:
    """Return the arguments of `members(names)` for the first operands of a batch."""
    args: dict[str, Argument] = {"batch1": batch.axes[1], "batch2": batch.axes[2], "count": batch.count}
    for name, operand in zip(names, batch.operands, strict=False):
        args |= {f"{name}_batch{i}": stride for i, stride in enumerate(operand.batch)}
        args |= {f"{name}_row": operand.row, f"{name}_column": operand.column}
    return args


def require_local(runtime: Runtime, nbytes: int) -> Declined | None:
    """Return the reason why a workgroup lacks memory; None if it suffices."""
    available = runtime.features.local_memory
    return Declined(f"needs {nbytes} bytes of workgroup memory of {available}") if nbytes > available else None


def launch(
    runtime: Runtime,
    kernel: str,
    definitions: Definitions,
    operands: dict[str, Spec],
    outputs: tuple[Spec, ...],
    args: Arguments,
    groups: int,
) -> Launch | Declined:
    """Return a launch of a linear_algebra kernel, whose first arguments are the operands by name."""
    if too_large(runtime, *operands.values(), *outputs):
        return OPERAND_TOO_LARGE
    places = {name: Tensor(i) for i, name in enumerate(operands)}
    return runtime.launch(f"linear_algebra/{kernel}", definitions, {**places, **args}, groups)
