"""Softmax, its logarithm and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime


def _lowering(kernel: str, operands: tuple[str, ...], log: bool) -> LoweringFunction:
    """Return the lowering of a kernel with these argument names for the inputs and the output."""

    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if len(specs) != len(inputs) + 1:
            return Declined("an operand is a number")
        if any(s.dtype is not specs[0].dtype for s in specs):
            return Declined("the operands have different dtypes")
        arranged = rows.arrange(specs, params["axis"])
        if isinstance(arranged, Declined):
            return arranged
        args = {**{o: Tensor(i) for i, o in enumerate(operands)}, **arranged.args(*operands)}
        definitions = arranged.definitions | {"LOG": log}
        name = f"log_{kernel}" if log else kernel
        return runtime.launch(
            name, "rowwise/softmax", definitions, args, arranged.blocks, arranged.threads, kernel=kernel
        )

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "softmax": _lowering("softmax", ("x", "out"), False),
    "log_softmax": _lowering("softmax", ("x", "out"), True),
    "softmax_grad": _lowering("softmax_grad", ("g", "out", "dx"), False),
    "log_softmax_grad": _lowering("softmax_grad", ("g", "out", "dx"), True),
}
