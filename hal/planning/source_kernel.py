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
from polyhal.hal.ops.schema import Params, Specs, tensors
from polyhal.hal.planning.plan import Run, launch_run
from polyhal.hal.planning.request import Request, Resolved
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.protocol import Declined, Feature, Launch, SupportsUserKernels

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.planning.planner import Planner


def source_kernel(planner: Planner, request: Request, strategy: SourceKernel) -> Resolved | None:
    """Run the op's own kernel. Raises KernelBuildError, and UnsupportedOpError if nothing else could run the op."""
    resolution, device = request.resolution, planner.device
    answer = source_launch(device, strategy, request.inputs, request.outputs, request.params)
    if isinstance(answer, Declined):
        resolution.skipped.append(f"the op's own kernel: {answer.reason}")
        if "numpy" not in strategy.kernel.sources and request.op.decompose is None:
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
    resolution.how = f"kernel {answer.name} from the op's own source" + (
        " after copies of strided inputs" if copies else ""
    )
    resolution.temporary = sum(c.nbytes for c in copies)
    # Copies lie in memory of the pool, which does not outlive a run.
    resolution.recordable = not copies
    if strategy.initial is None and not copies:
        return launch_run(device, answer), answer
    return _prepared(device, answer, copies, strategy), None


def source_launch(
    device: Device, strategy: SourceKernel, inputs: Specs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Ask the backend for the launch of an op's own kernel, whose inputs are contiguous by then."""
    if not device.features & Feature.USER_KERNELS:
        return Declined("the backend compiles no kernels of users")
    operands = tensors(inputs)
    if not all(s.size for s in operands):
        return Declined("an input is empty")
    dtype = operands[0].dtype
    if strategy.dtypes and dtype not in strategy.dtypes:
        return Declined(f"the kernel is not written for {dtype.name}")
    backend = cast(SupportsUserKernels, device.backend)
    dense = tuple(contiguous(s.dtype, s.shape) if isinstance(s, Spec) else s for s in inputs)
    grid = strategy.grid(inputs, outputs, params)
    return backend.compile_kernel(strategy.kernel, dense, outputs, params, grid, strategy.group)


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
