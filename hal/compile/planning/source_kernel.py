"""Resolution step: a kernel whose source comes with the op, compiled by the backend.

Kernels of users index contiguous operands, so strided operands are copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.execution.op_plan import launch_run
from polyhal.hal.errors import BackendError, UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.schema import Params, Specs, tensors
from polyhal.hal.protocol import Declined, Feature, Launch, SimpleLaunch, SupportsUserKernels

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.device import Device


def source_kernel(planner: Planner, request: Request, strategy: SourceKernel) -> Resolved | None:
    """Run the op's own kernel. Raises KernelBuildError, and UnsupportedOpError if no other step can run the op."""
    resolution, device = request.resolution, planner.device
    answer = source_launch(device, strategy, request.inputs, request.outputs, request.params)
    if isinstance(answer, Declined):
        resolution.skipped.append(f"the op's own kernel: {answer.reason}")
        if "numpy" not in strategy.kernel.sources and request.op.decompose is None:
            raise UnsupportedOpError(
                message(
                    request.op.name,
                    answer.reason,
                    fix="pass the kernel in the device's language, or a NumPy function as `numpy=`",
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
    resolution.recordable = True
    launch = answer if strategy.initial is None and not copies else _prepared(device, answer, copies, request, strategy)
    return launch_run(device, launch), launch


def source_launch(
    device: Device, strategy: SourceKernel, inputs: Specs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Return the backend's launch of an op's own kernel for contiguous copies of its inputs, or a reason."""
    if not device.features & Feature.USER_KERNELS:
        return Declined("the backend does not compile user kernels")
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


def _copies(inputs: Sequence[Any]) -> list[tuple[int, Spec]]:
    """Return the positions of strided inputs, with the specs of contiguous copies."""
    return [
        (i, contiguous(s.dtype, s.shape)) for i, s in enumerate(inputs) if isinstance(s, Spec) and not s.is_contiguous
    ]


def _prepared(
    device: Device, kernel: Launch, copies: Sequence[tuple[int, Spec]], request: Request, strategy: SourceKernel
) -> Launch:
    """Return a launch that copies strided inputs to its workspace and initializes outputs before the kernel runs."""
    copy, fill = device.backend.copy, cast(Callable[..., None], device.backend.fill)
    initial = strategy.initial
    first, last = len(request.inputs), len(request.inputs) + len(request.outputs)

    def run(*args: Any) -> None:
        values, outs, workspace = list(args[:first]), args[first:last], args[last:]
        for (position, spec), temporary in zip(copies, workspace, strict=False):
            values[position] = Ref(temporary, spec, 0)
            copy(args[position], values[position])
        if initial is not None:
            for out in outs:
                if out.size:
                    fill(initial, out)
        kernel(*values, *outs, *workspace[len(copies) :])

    return SimpleLaunch(kernel.name, run, (*(spec.nbytes for _, spec in copies), *kernel.workspace))
