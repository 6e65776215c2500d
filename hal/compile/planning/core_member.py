"""Resolution step: a required member of the contract, which takes contiguous inputs of one dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.compile.planning.request import Request, Resolved
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.execution.op_plan import launch_run
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View, contiguous, place
from polyhal.hal.ops.lowering import CoreCall, CoreInput, CoreMember
from polyhal.hal.protocol import Declined, Handle, InputSpec, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.compile.planning.planner import Planner
    from polyhal.hal.device import Device

_WIDER: dict[str, tuple[DType, ...]] = {
    "float": (dtypes.float32, dtypes.float64),
    "int": (dtypes.int32, dtypes.int64),
    "uint": (dtypes.uint32, dtypes.uint64, dtypes.int32),
    "bool": (dtypes.uint32, dtypes.int32),
}
"""Substitutes for dtypes that a device does not compute in, by kind, in order of preference."""


def core_member(planner: Planner, request: Request, strategy: CoreMember) -> Resolved | None:
    """Run the op as one call of a core member."""
    _, inputs, outputs, params, _, resolution, _ = request
    device = planner.device
    call = strategy.rule(device.backend, inputs, outputs, params)
    if isinstance(call, Declined):
        resolution.skipped.append(f"core method: {call.reason}")
        return None
    if request.has_empty_input:
        resolution.skipped.append("core method: an input is empty")
        return None
    if planner.is_quarantined(ResolutionStep.CORE, f"core method {call.name}", resolution):
        return None
    launch = _launch(device, call, inputs, outputs[0])
    if launch is None:
        resolution.skipped.append(f"core method {call.name}: no dtype of the device computes {call.result.name}")
        return None
    resolution.step, resolution.how = ResolutionStep.CORE, launch.name
    resolution.recordable = True
    return launch_run(device, launch), launch


class _Loader(NamedTuple):
    """Conversion of one argument of a launch to a contiguous operand in a dtype that the device computes in."""

    position: int
    """Position of the argument."""
    load: Callable[[Any, Handle], Ref]
    """Function that returns the operand, given the argument and memory for a temporary."""
    temporary: int = 0
    """Bytes of the temporary; 0 without one."""


def _launch(device: Device, call: CoreCall, inputs: Sequence[InputSpec | None], output: Spec) -> SimpleLaunch | None:
    """Return a launch of `call`, with a workspace for copies; None if no dtype of the device fits an operand or the result."""
    loaders: list[_Loader] = []
    for position, (spec, operand) in enumerate(zip(inputs, call.inputs, strict=True)):
        if operand is not None:
            loader = _loader(device, position, spec, operand)
            if loader is None:
                return None
            loaders.append(loader)
    result = call.result if call.result_exact else _computing(device, call.result)
    if result is None:
        return None
    shaped = contiguous(result, call.shape)
    workspace = tuple(x.temporary for x in loaders if x.temporary)
    if result is output.dtype:
        run = _direct_run(call, loaders, len(inputs), shaped._replace(aligned=output.aligned))
    else:
        run = _casting_run(device, call, loaders, len(inputs), shaped, output)
        workspace += (shaped.nbytes,)
    return SimpleLaunch(f"core method {call.name}", run, workspace)


def _loaded(loaders: Sequence[_Loader], args: Sequence[Any], workspace: Iterator[Handle]) -> list[Ref]:
    """Return the arguments for a core member."""
    return [load(args[i], next(workspace) if temporary else None) for i, load, temporary in loaders]


def _direct_run(call: CoreCall, loaders: Sequence[_Loader], count: int, shaped: Spec) -> Callable[..., None]:
    """Return a run that writes the output, which follows `count` inputs, directly."""
    compute = call.run

    def run(*args: Any) -> None:
        out = args[count]
        compute(*_loaded(loaders, args, iter(args[count + 1 :])), Ref(out.handle, shaped, out.offset))

    return run


def _casting_run(
    device: Device, call: CoreCall, loaders: Sequence[_Loader], count: int, shaped: Spec, output: Spec
) -> Callable[..., None]:
    """Return a run that computes in a wider dtype, in the last part of the workspace, and casts the result to the output."""
    compute, copy = call.run, device.backend.copy
    dense = contiguous(shaped.dtype, output.shape)

    def run(*args: Any) -> None:
        compute(*_loaded(loaders, args, iter(args[count + 1 : -1])), Ref(args[-1], shaped, 0))
        copy(Ref(args[-1], dense, 0), args[count])

    return run


def _computing(device: Device, dtype: DType) -> DType | None:
    """Return `dtype`, or the first wider one, in which the device computes and stores; None without one."""
    storage, compute = device.capabilities.storage, device.capabilities.compute
    dtype = device.stand_ins.get(dtype, dtype)
    if dtype in compute and dtype in storage:
        return dtype
    wider = _WIDER[dtype.kind]
    return next((w for w in wider if w.itemsize >= dtype.itemsize and w in compute and w in storage), None)


def _loader(device: Device, position: int, spec: InputSpec | None, operand: CoreInput) -> _Loader | None:
    """Return the loader of the argument at `position`; None if no dtype of the device represents it."""
    dtype = device.stand_ins.get(operand.dtype, operand.dtype) if operand.exact else _computing(device, operand.dtype)
    if dtype is None:
        return None
    target = contiguous(dtype, operand.shape)
    if isinstance(spec, ScalarSpec):
        return _filling_loader(device, position, target)
    assert spec is not None
    view = operand.view or View(spec.shape, spec.strides)
    layout = place(spec, view)
    if layout.is_contiguous and spec.dtype is dtype:
        return _reshaping_loader(position, target._replace(aligned=layout.aligned), view.offset)
    return _copying_loader(device, position, layout, view, target)


def _filling_loader(device: Device, position: int, target: Spec) -> _Loader:
    """Return a loader that fills a temporary tensor with a number."""
    fill = device.backend.fill

    def load(x: float, temporary: Handle) -> Ref:
        ref = Ref(temporary, target, 0)
        fill(x, ref)
        return ref

    return _Loader(position, load, target.nbytes)


def _reshaping_loader(position: int, target: Spec, offset: int) -> _Loader:
    """Return a loader that reshapes contiguous memory without a copy."""

    def load(x: Ref, temporary: Handle) -> Ref:
        return Ref(x.handle, target, x.offset + offset)

    return _Loader(position, load)


def _copying_loader(device: Device, position: int, layout: Spec, view: View, target: Spec) -> _Loader:
    """Return a loader that copies strided memory, or another dtype, to a temporary."""
    copy = device.backend.copy
    dense = contiguous(target.dtype, view.shape)
    offset = view.offset

    def load(x: Ref, temporary: Handle) -> Ref:
        copy(Ref(x.handle, layout, x.offset + offset), Ref(temporary, dense, 0))
        return Ref(temporary, target, 0)

    return _Loader(position, load, target.nbytes)
