"""Resolution step: a kernel whose source comes with the op, compiled by the backend.

Kernels of users index their operands plainly, so strided operands are copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from polyhal.hal.errors import BackendError, UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.memory.pool import bucket
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.planning.plan import Run
from polyhal.hal.planning.request import Request, Resolved
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.protocol import Declined, Feature, Launch, SupportsUserKernels

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.planning.planner import Planner


def source_kernel(planner: Planner, request: Request, strategy: SourceKernel) -> Resolved | None:
    """Run the op's own kernel. Raises KernelBuildError, and UnsupportedOpError if nothing else could run the op."""
    resolution, device = request.resolution, planner.device
    answer = _compile(device, request, strategy)
    if isinstance(answer, Declined):
        resolution.skipped.append(f"kernel of the program: {answer.reason}")
        if "numpy" not in strategy.kernel.sources:
            raise UnsupportedOpError(
                message(
                    request.op.name,
                    answer.reason,
                    fix="give the kernel in the device's language, or a NumPy function as `numpy=`",
                    device=device,
                )
            )
        return None
    if not planner.is_launch(answer):
        problem = f"compile_kernel returned {answer!r}"
        raise BackendError(
            message(request.op.name, problem, expected="a Launch, or Declined with a reason", device=device)
        )
    copies = _copies(request.inputs)
    resolution.step = ResolutionStep.NATIVE
    resolution.how = f"kernel of the program {answer.name}" + (" after copies of strided inputs" if copies else "")
    resolution.temporary = sum(c.nbytes for c in copies)
    # Copies lie in memory of the pool, which does not outlive a run.
    resolution.recordable = not copies
    if strategy.initial is None and not copies and not answer.workspace:
        return lambda args, outs: answer(*args, *outs), answer
    return _prepared(device, answer, copies, strategy), None


def _compile(device: Device, request: Request, strategy: SourceKernel) -> Launch | Declined:
    """Ask the backend for a launch."""
    if not device.features & Feature.USER_KERNELS:
        return Declined("the backend compiles no kernels of users")
    if request.has_empty_input:
        return Declined("an input is empty")
    backend = cast(SupportsUserKernels, device.backend)
    inputs = tuple(contiguous(s.dtype, s.shape) if isinstance(s, Spec) else s for s in request.inputs)
    grid = strategy.grid(request.inputs, request.outputs, request.params)
    return backend.compile_kernel(strategy.kernel, inputs, request.outputs, request.params, grid, strategy.group)


class _DenseCopy(NamedTuple):
    """The input at `position`, copied to contiguous memory."""

    position: int
    spec: Spec
    nbytes: int


def _copies(inputs: Sequence[Any]) -> list[_DenseCopy]:
    dense = [
        (i, contiguous(s.dtype, s.shape)) for i, s in enumerate(inputs) if isinstance(s, Spec) and not s.is_contiguous
    ]
    return [_DenseCopy(i, spec, bucket(spec.nbytes)) for i, spec in dense]


def _prepared(device: Device, launch: Launch, copies: Sequence[_DenseCopy], strategy: SourceKernel) -> Run:
    """A run that copies inputs and sets outputs before the launch."""
    take, copy = device.pool.take, device.backend.copy
    fill: Callable[..., None] = device.backend.fill
    initial = strategy.initial
    sizes = [bucket(n) for n in launch.workspace]

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        values, keep = list(args), list[Buffer]()
        for position, spec, nbytes in copies:
            buffer = take(nbytes)
            keep.append(buffer)
            values[position] = Ref(buffer.handle, spec, 0)
            copy(args[position], values[position])
        if initial is not None:
            for out in outs:
                if out.size:
                    fill(initial, out)
        workspace = [take(n) for n in sizes]
        launch(*values, *outs, *[b.handle for b in workspace])

    return run
