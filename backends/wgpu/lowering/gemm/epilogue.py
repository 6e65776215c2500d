"""Epilogues of matrix products: the function that lib/store_sums.wgsl applies to each sum, and its arguments."""

from __future__ import annotations

from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate, only_stored
from polyhal.backends.common.launching.launch import Argument, Arguments, Tensor
from polyhal.backends.common.problems.gemm import Addend, PairedSum, Product
from polyhal.backends.wgpu.lowering.pointwise.elementwise import ElementBody
from polyhal.backends.wgpu.lowering.pointwise.opaque import with_opaque_operands
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec

_SHORT = frozenset({"add", "subtract", "multiply", "negative", "relu", "where", "opaque"})
"""Ops that processors compile fast: kernels may contain many copies."""
_MANY_SUMS = 64
_OTHER_BUFFERS = 3


def refusal(runtime: Runtime, p: Product, copies: int = _MANY_SUMS) -> str:
    """Return the reason why the epilogue of a product needs a separate launch; empty if it does not.

    The kernel contains the epilogue up to `copies` times, once for each of its sums.
    """
    if p.epilogue is None:
        return ""
    if p.sum_class != "float":
        return f"an epilogue of {p.sum_dtype.name}"
    if copies > 1 and runtime.features.cpu and (slow := {s.op for s in p.epilogue.steps} - _SHORT):
        return f"{', '.join(sorted(slow))} would take long to compile on a processor"
    tensors = [o for o in p.epilogue.operands if isinstance(o, Addend)]
    if len(tensors) + _OTHER_BUFFERS > (most := runtime.features.max_buffers):
        return f"the kernel has {len(tensors) + _OTHER_BUFFERS} buffers; the device supports {most}"
    if too_large(runtime, Spec(p.out_dtype, (p.count, p.m, p.n), (p.m * p.n, p.n, 1), False)):
        return "the result is larger than a binding"
    return ""


def epilogue(p: Product, out_lanes: int) -> tuple[dict[str, object], Arguments]:
    """Return the template variable EPILOGUE of lib/store_sums.wgsl, if the product has one, and the kernel arguments."""
    if p.epilogue is None:
        return {}, {}
    body = ElementBody()
    values, tensors, pair = [RegisterValue("r_e0", p.sum_dtype)], [], ""
    args: dict[str, Argument] = {}
    for number, operand in enumerate(p.epilogue.operands, 1):
        name = f"e{number}"
        if isinstance(operand, PairedSum):
            pair = f"r_{name}"
            values.append(RegisterValue(pair, p.sum_dtype))
            continue
        if not isinstance(operand, Addend):
            values.append(RegisterValue(body.parameter(f"x_{name}", operand, p.sum_dtype), p.sum_dtype))
            continue
        m = operand.matrix
        placed = (m.row, m.column, m.batch) == (p.out.row, p.out.column, p.out.batch)
        lanes = out_lanes if placed and m.aligned else 1
        tensors.append({"name": name, "dtype": operand.dtype.name, "lanes": lanes, "placed": placed})
        args[name] = Tensor(m.place)
        args |= {} if placed else {f"{name}_row": m.row, f"{name}_column": m.column}
        values.append(RegisterValue(f"r_{name}", operand.dtype))
    steps, numbers = with_opaque_operands(p.epilogue.steps, len(values))
    last = numbers[-1]
    result = cast(body, evaluate(body, steps, values, stored=only_stored(steps, [last]))[last], p.sum_dtype)
    variables = {
        "tensors": tensors,
        "pair": pair,
        "numbers": body.numbers,
        "compute": body.compute,
        "result": result,
        "functions": bool(body.dialect.libraries),
    }
    return {"EPILOGUE": variables}, {**args, **body.args}
