"""Random numbers and dropout, from Philox. Kernels: shaders/wgsl/pointwise/random.wgsl and dropout.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Scalar, Table, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ScalarSpec, Spec, collapse
from polyhal.hal.ops.random.normal_table import COEFFICIENTS
from polyhal.hal.ops.random.philox import blocks_for, dropout_threshold
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]

_AXES = 3
_DISTRIBUTIONS = {"random_bits": "bits", "uniform": "uniform", "normal": "normal"}


def _refusal(runtime: Runtime, out: Spec, *inputs: Spec) -> Declined | None:
    """Return the reason why the kernels cannot run, or None."""
    if too_large(runtime, out, *inputs):
        return OPERAND_TOO_LARGE
    return None if out.aligned else Declined("the output is not aligned")


def _lowering(op: str) -> LoweringFunction:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        if not all(isinstance(s, ScalarSpec) for s in inputs):
            return Declined("seed or offset is a tensor")
        (out,) = outputs
        refusal = _refusal(runtime, out)
        if refusal is not None:
            return refusal
        size = runtime.features.group_size
        definitions = {"DTYPE": out.dtype.name, "DISTRIBUTION": _DISTRIBUTIONS[op], "GROUP": size}
        args: Arguments = {"out": Tensor(2), "size": out.size, "seed": Scalar(0), "offset": Scalar(1)}
        if op == "normal":
            args = {**args, "table": Table(COEFFICIENTS)}
        return runtime.launch("pointwise/random", definitions, args, ceil_div(blocks_for(out.size), size))

    return lower


def _dropout(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    x, seed, offset = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(seed, ScalarSpec) or not isinstance(offset, ScalarSpec):
        return Declined("x is a number, or seed or offset is a tensor")
    lengths, (steps,) = collapse(x.shape, (x.strides,))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} axes remain after merging; the kernel supports {_AXES}")
    refusal = _refusal(runtime, out, x)
    if refusal is not None:
        return refusal
    fill = _AXES - len(lengths)
    lengths, steps = (1,) * fill + lengths, (0,) * fill + steps
    p = params["p"]
    size = runtime.features.group_size
    definitions = {"DTYPE": x.dtype.name, "STRIDED": not (x.is_contiguous and x.aligned), "GROUP": size}
    args: Arguments = {
        "x": Tensor(0),
        "out": Tensor(3),
        "size": x.size,
        "seed": Scalar(1),
        "offset": Scalar(2),
        "threshold": dropout_threshold(p),
        "scale": 1 / (1 - p),
        "length1": lengths[1],
        "length2": lengths[2],
        "step0": steps[0],
        "step1": steps[1],
        "step2": steps[2],
    }
    return runtime.launch("pointwise/dropout", definitions, args, ceil_div(blocks_for(x.size), size))


LOWERINGS: dict[str, LoweringFunction] = {**{op: _lowering(op) for op in _DISTRIBUTIONS}, "dropout": _dropout}
