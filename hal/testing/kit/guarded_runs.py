"""Runs of an op between guard zones: its outputs in every placement, and the temporaries of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.operands import arg
from polyhal.hal.device import Device
from polyhal.hal.layout import ALIGNMENT
from polyhal.hal.ops.layout.views import contiguous as contiguous_copy
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.protocol import Launch
from polyhal.hal.system.reference.op_calls import ExpectedResults, OpCall
from polyhal.hal.testing.kit.guards import GuardedOutput, GuardedTemporary
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs


class GuardedPlacement(NamedTuple):
    """Placement of an output in a larger buffer."""

    lead: int
    """Number of elements between the start of the buffer and the output."""
    strided: bool
    """True if there are gaps between the elements."""
    name: str


PLACEMENTS = (
    GuardedPlacement(ALIGNMENT, False, f"an output at offset {ALIGNMENT}"),
    GuardedPlacement(ALIGNMENT + 1, False, f"an output at offset {ALIGNMENT + 1}"),
    GuardedPlacement(ALIGNMENT, True, "a strided output"),
)
"""Placements on a vector boundary, one element past it, and with gaps between the elements."""


def guarded_outputs(
    call: OpCall,
    inputs: Inputs,
    expected: ExpectedResults,
    device: Device,
    placement: GuardedPlacement,
    what: str,
) -> list[GuardedOutput]:
    """Run a call into guarded outputs, and its kernel once more with guarded temporaries, if it has any.

    Raises AssertionError for a write outside of them. Returns the outputs, with unchecked elements.
    """
    label = f"{what} into {placement.name}"
    outs = [GuardedOutput(s, device, placement.lead, strided=placement.strided) for s in expected.outputs]
    dispatch.apply_into(call.op, inputs, tuple(call.params.values()), tuple(o.tensor for o in outs))
    if not placement.strided:
        operands = _dense(inputs) if call.op.strategy(SourceKernel) else inputs
        launch = _kernel(call, operands, outs, device)
        if launch is not None and launch.workspace:
            _with_guarded_temporaries(launch, operands, outs, device, label)
    for out in outs:
        out.check(label)
    return outs


def _dense(inputs: Inputs) -> tuple[Any, ...]:
    """Return copies of tensors in contiguous memory, as arguments of a user kernel's op."""
    return tuple(contiguous_copy(x) if isinstance(x, Tensor) else x for x in inputs)


def _kernel(call: OpCall, inputs: Inputs, outs: Sequence[GuardedOutput], device: Device) -> Launch | None:
    """Return the kernel that runs a call into these outputs; None if several launches run it."""
    specs = tuple(dispatch.inference_spec(x) for x in inputs)
    params = dict(call.params)
    dispatch.infer(call.op, specs, params)  # may normalize parameters
    return device.planner.resolve(call.op, specs, tuple(o.tensor.spec for o in outs), params)[1]


def _with_guarded_temporaries(
    launch: Launch, inputs: Inputs, outs: Sequence[GuardedOutput], device: Device, label: str
) -> None:
    temporaries = [GuardedTemporary(n, device) for n in launch.workspace]
    operands = [arg(x) for x in inputs]
    launch(*operands, *[o.tensor.ref for o in outs], *[t.handle for t in temporaries])
    for temporary in temporaries:
        temporary.check(label)
