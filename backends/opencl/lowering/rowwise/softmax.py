"""Softmax, its logarithm and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.opencl.lowering.support import rows
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Lower = Callable[[Runtime, tuple[InputSpec | None, ...], tuple[Spec, ...], Mapping[str, Any]], Launch | Declined]


def _lowering(kernel: str, operands: int, log: bool) -> Lower:
    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if len(specs) != operands + 1:
            return Declined("an operand is a number")
        if any(s.dtype is not specs[0].dtype for s in specs):
            return Declined("operands of different dtypes")
        arranged = rows.arrange(runtime, specs, params["axis"], operands)
        if isinstance(arranged, Declined):
            return arranged
        definitions = arranged.definitions | {"LOG": log}
        if kernel == "softmax" and not log:
            definitions["KEEP_EXPONENTIALS"] = specs[0].dtype.itemsize >= 4
        tensors = [Tensor(i) for i in range(operands + 1)]
        return runtime.launch(
            kernel, f"rowwise/{kernel}", definitions, [*tensors, *arranged.parameters], arranged.items, arranged.group
        )

    return lower


LOWERINGS: dict[str, Lower] = {
    "softmax": _lowering("softmax", 1, False),
    "log_softmax": _lowering("softmax", 1, True),
    "softmax_grad": _lowering("softmax_grad", 2, False),
    "log_softmax_grad": _lowering("softmax_grad", 2, True),
}
