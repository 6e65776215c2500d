"""Softmax, log softmax and their gradients. Kernels: shaders/wgsl/rowwise/softmax.wgsl and softmax_grad.wgsl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.wgpu.lowering.support import rows
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch


def _lowering(kernel: str, operands: int, log: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if len(specs) != operands + 1:
            return Declined("an operand is a number")
        if any(s.dtype is not specs[0].dtype for s in specs):
            return Declined("operands of different dtypes")
        if too_large(runtime, *specs):
            axes = [i for i in range(specs[0].ndim) if i != params["axis"] and specs[0].shape[i] > 1]
            if not axes:
                return Declined("a row is larger than what a kernel can see at once")
            widest = max(axes, key=lambda i: max(specs[0].shape[i] * abs(s.strides[i]) for s in specs))
            return rows.in_halves(kernel, runtime, lower, inputs, outputs, params, widest)
        arranged = rows.arrange(runtime, specs, params["axis"], operands)
        if isinstance(arranged, Declined):
            return arranged
        tensors = [Tensor(i) for i in range(operands + 1)]
        definitions = {**arranged.definitions, "LOG": log}
        return runtime.launch(
            kernel, f"rowwise/{kernel}", definitions, [*tensors, *arranged.parameters], arranged.groups
        )

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "softmax": _lowering("softmax", 1, False),
    "log_softmax": _lowering("softmax", 1, True),
    "softmax_grad": _lowering("softmax_grad", 2, False),
    "log_softmax_grad": _lowering("softmax_grad", 2, True),
}
