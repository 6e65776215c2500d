"""Copies of several contiguous tensors at once, and concatenations that are such copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, Tensor
from polyhal.backends.common.problems.multi_tensor import SlotOperand, TensorSlot, too_large
from polyhal.backends.opencl_c.lowering.support.multi_tensor import batches, by_alignment, definitions
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import ALIGNMENT, Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32}
_FEW = 3
"""Maximum tensors for which individual copies are as fast."""


def _copies(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    first = len(inputs)
    slots = [
        TensorSlot((Tensor(i), Tensor(first + i)), out.size, out.aligned and isinstance(x, Spec) and x.aligned)
        for i, (x, out) in enumerate(zip(inputs, outputs, strict=True))
    ]
    return _launch(runtime, inputs, outputs, slots)


def _concat(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    out = outputs[0]
    if any(n != 1 for n in out.shape[: params["axis"]]):
        return Declined("concatenation along an inner axis")
    slots, start = [], 0
    for i, x in enumerate(inputs):
        assert isinstance(x, Spec)
        aligned = out.aligned and x.aligned and start % ALIGNMENT == 0
        slots.append(TensorSlot((Tensor(i), Tensor(len(inputs), start)), x.size, aligned))
        start += x.size
    return _launch(runtime, inputs, outputs, slots)


def _launch(
    runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], slots: Sequence[TensorSlot]
) -> Launch | Declined:
    specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
    if len(inputs) <= _FEW:
        return Declined("few tensors")
    if len({s.dtype for s in specs}) > 1 or specs[0].dtype.itemsize not in _BITS:
        return Declined("tensors of several dtypes, or of 8 bytes")
    if not all(s.is_contiguous for s in specs) or too_large(specs):
        return Declined("tensors that are not contiguous, or too large")
    bits = _BITS[specs[0].dtype.itemsize]
    operands = SlotOperand("x", bits, read_only=True), SlotOperand("out", bits)
    launches = []
    for aligned, part in by_alignment(runtime, slots):
        for batch in batches(runtime, operands, part):
            sizes = definitions(runtime, operands, "uint", slots=batch.slots, aligned=aligned)
            group = int(sizes["GROUP"])
            chosen = {**sizes, "DTYPE": bits.name}
            launches.append(runtime.launch("pointwise/copies", chosen, batch.args, (batch.chunks * group,), (group,)))
    return LaunchSequence(launches)


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"copies": _copies, "concat": _concat}
