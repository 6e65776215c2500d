"""Softmax, log softmax and their gradients. Kernels: shaders/wgsl/rowwise/softmax.wgsl and softmax_grad.wgsl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.wgpu.lowering.support import rows
from polyhal.backends.wgpu.lowering.support.windows import ROW_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_FORWARD, _BACKWARD = ("x", "out"), ("g", "out", "dx")
"""The buffers of the kernels: inputs, then the output."""


def _lowering(kernel: str, operands: Sequence[str], log: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if len(specs) != len(operands):
            return Declined("an operand is a number")
        if any(s.dtype is not specs[0].dtype for s in specs):
            return Declined("the operands have different dtypes")
        if too_large(runtime, *specs):
            axes = [i for i in range(specs[0].ndim) if i != params["axis"] and specs[0].shape[i] > 1]
            if not axes:
                return ROW_TOO_LARGE
            widest = max(axes, key=lambda i: max(specs[0].shape[i] * abs(s.strides[i]) for s in specs))
            return rows.in_halves(runtime, lower, inputs, outputs, params, widest)
        arranged = rows.arrange(runtime, dict(zip(operands, specs, strict=True)), params["axis"], len(operands) - 1)
        if isinstance(arranged, Declined):
            return arranged
        args: Arguments = {**{name: Tensor(i) for i, name in enumerate(operands)}, **arranged.args}
        definitions = {**arranged.definitions, "LOG": log}
        return runtime.launch(f"rowwise/{kernel}", definitions, args, arranged.groups)

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "softmax": _lowering("softmax", _FORWARD, False),
    "log_softmax": _lowering("softmax", _FORWARD, True),
    "softmax_grad": _lowering("softmax_grad", _BACKWARD, False),
    "log_softmax_grad": _lowering("softmax_grad", _BACKWARD, True),
}
