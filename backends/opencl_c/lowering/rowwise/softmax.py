"""Softmax, log-softmax and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.opencl_c.lowering.support.rows import row_kernel
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _lowering(kernel: str, operands: tuple[str, ...], log: bool) -> LoweringFunction:
    """Return the lowering of a kernel with these memory parameters, the result last."""

    def lower(
        runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        specs = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if len(specs) != len(operands):
            return Declined("an operand is a number")
        if any(s.dtype is not specs[0].dtype for s in specs):
            return Declined("operands of different dtypes")
        plan = row_kernel(runtime, specs, params["axis"], cached=len(operands) - 1)
        if isinstance(plan, Declined):
            return plan
        definitions = plan.definitions | {"LOG": log}
        if kernel == "softmax" and not log:
            definitions["KEEP_EXPONENTIALS"] = specs[0].dtype.itemsize >= 4
        tensors: dict[str, Argument] = {name: Tensor(i) for i, name in enumerate(operands)}
        return runtime.launch(f"rowwise/{kernel}", definitions, tensors | plan.args(*operands), plan.items, plan.group)

    return lower


LOWERINGS: dict[str, LoweringFunction] = {
    "softmax": _lowering("softmax", ("x", "out"), False),
    "log_softmax": _lowering("softmax", ("x", "out"), True),
    "softmax_grad": _lowering("softmax_grad", ("g", "out", "dx"), False),
    "log_softmax_grad": _lowering("softmax_grad", ("g", "out", "dx"), True),
}
