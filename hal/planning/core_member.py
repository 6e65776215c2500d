"""Resolution step: a required member of the contract, which takes contiguous inputs of one dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View, contiguous, place
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.memory.pool import bucket
from polyhal.hal.ops.lowering import CoreCall, CoreInput, CoreMember
from polyhal.hal.planning.plan import Run
from polyhal.hal.planning.request import Request, Resolved
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.planning.planner import Planner

_WIDER: dict[str, tuple[DType, ...]] = {
    "float": (dtypes.float32, dtypes.float64),
    "int": (dtypes.int32, dtypes.int64),
    "uint": (dtypes.uint32, dtypes.uint64, dtypes.int32),
    "bool": (dtypes.uint32, dtypes.int32),
}
"""The dtypes that stand in for those of a kind that a device does not compute in, in order of preference."""


def core_member(planner: Planner, request: Request, strategy: CoreMember) -> Resolved | None:
    """Run the op as one call of a core member."""
    _, inputs, outputs, params, _, resolution = request
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
    plan = _plan_call(device, call, inputs, outputs[0])
    if plan is None:
        resolution.skipped.append(f"core method {call.name}: no dtype of the device computes {call.result.name}")
        return None
    run, resolution.temporary = plan
    resolution.step, resolution.how = ResolutionStep.CORE, f"core method {call.name}"
    return run, None


class _Loader(NamedTuple):
    """Presents one argument of a run to a core member: contiguous, and in a dtype that the device computes in."""

    position: int
    """Of the argument."""
    load: Callable[[Any, list[Buffer]], Ref]
    """Takes the argument, and a list that keeps temporaries for the time of the run."""
    temporary: int = 0
    """Bytes that it takes from the pool."""


def _plan_call(
    device: Device, call: CoreCall, inputs: Sequence[InputSpec | None], output: Spec
) -> tuple[Run, int] | None:
    """A run of `call`, and the bytes that it takes from the pool; None if no dtype of the device holds an operand."""
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
    temporary = sum(x.temporary for x in loaders)
    shaped = contiguous(result, call.shape)
    if result is output.dtype:
        return _direct_run(call, loaders, shaped._replace(aligned=output.aligned)), temporary
    return _casting_run(device, call, loaders, shaped, output), temporary + bucket(shaped.nbytes)


def _direct_run(call: CoreCall, loaders: Sequence[_Loader], shaped: Spec) -> Run:
    """A run that writes the output directly."""
    compute = call.run

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        keep: list[Buffer] = []
        refs = [load(args[i], keep) for i, load, _ in loaders]
        compute(*refs, Ref(outs[0].handle, shaped, outs[0].offset))

    return run


def _casting_run(device: Device, call: CoreCall, loaders: Sequence[_Loader], shaped: Spec, output: Spec) -> Run:
    """A run that computes in a wider dtype, and casts the result to the output's."""
    compute, take, copy = call.run, device.pool.take, device.backend.copy
    size = bucket(shaped.nbytes)
    dense = contiguous(shaped.dtype, output.shape)

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        keep: list[Buffer] = []
        refs = [load(args[i], keep) for i, load, _ in loaders]
        buffer = take(size)
        compute(*refs, Ref(buffer.handle, shaped, 0))
        copy(Ref(buffer.handle, dense, 0), outs[0])

    return run


def _computing(device: Device, dtype: DType) -> DType | None:
    """`dtype`, or the first wider one, in which the device computes and stores."""
    storage, compute = device.capabilities.storage, device.capabilities.compute
    dtype = device.stand_ins.get(dtype, dtype)
    if dtype in compute and dtype in storage:
        return dtype
    wider = _WIDER[dtype.kind]
    return next((w for w in wider if w.itemsize >= dtype.itemsize and w in compute and w in storage), None)


def _loader(device: Device, position: int, spec: InputSpec | None, operand: CoreInput) -> _Loader | None:
    """How the argument at `position` reaches the call; None if no dtype of the device holds it."""
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
    """A number becomes a tensor."""
    take, fill = device.pool.take, device.backend.fill
    size = bucket(target.nbytes)

    def load(x: Any, keep: list[Buffer]) -> Ref:
        buffer = take(size)
        keep.append(buffer)
        ref = Ref(buffer.handle, target, 0)
        fill(x, ref)
        return ref

    return _Loader(position, load, size)


def _reshaping_loader(position: int, target: Spec, offset: int) -> _Loader:
    """Memory that is contiguous already is passed in another shape."""

    def load(x: Ref, keep: list[Buffer]) -> Ref:
        return Ref(x.handle, target, x.offset + offset)

    return _Loader(position, load)


def _copying_loader(device: Device, position: int, layout: Spec, view: View, target: Spec) -> _Loader:
    """Strided memory, or another dtype, is copied."""
    take, copy = device.pool.take, device.backend.copy
    dense = contiguous(target.dtype, view.shape)
    size = bucket(target.nbytes)
    offset = view.offset

    def load(x: Ref, keep: list[Buffer]) -> Ref:
        buffer = take(size)
        keep.append(buffer)
        copy(Ref(x.handle, layout, x.offset + offset), Ref(buffer.handle, dense, 0))
        return Ref(buffer.handle, target, 0)

    return _Loader(position, load, size)
