"""Random numbers and dropout, from Philox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Scalar, Table, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import ScalarSpec, Spec, collapse
from polyhal.hal.ops.random.normal_table import COEFFICIENTS
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_WORDS = 4
_AXES = 3
_LARGEST_WORD = (1 << 32) - 1
_DISTRIBUTIONS = {"random_bits": 0, "uniform": 1, "normal": 2}


def _lowering(op: str) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        if not all(isinstance(s, ScalarSpec) for s in inputs):
            return Declined("seed or offset is a tensor")
        (out,) = outputs
        definitions: dict[str, str | int | bool] = {
            "OUT_DTYPE": out.dtype.name, "DISTRIBUTION": _DISTRIBUTIONS[op], "BLOCK": _BLOCK
        }  # fmt: skip
        args: Arguments = {"out": Tensor(2), "size": out.size, "seed": Scalar(0), "offset": Scalar(1)}
        if op == "normal":
            args = {**args, "table": Table(COEFFICIENTS)}
        return runtime.launch(op, "pointwise/random", definitions, args, ceil_div(out.size, _WORDS * _BLOCK), _BLOCK)

    return lower


def _dropout(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, seed, offset = inputs
    if not isinstance(x, Spec) or not isinstance(seed, ScalarSpec) or not isinstance(offset, ScalarSpec):
        return Declined("x is a number, or seed or offset is a tensor")
    lengths, (steps,) = collapse(x.shape, (x.strides,))
    if len(lengths) > _AXES:
        return Declined(f"{len(lengths)} axes remain after merging; the kernel supports {_AXES}")
    fill = _AXES - len(lengths)
    lengths, steps = (1,) * fill + lengths, (0,) * fill + steps
    p = params["p"]
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "REAL": rows.real_type(x.dtype), "STRIDED": not x.is_contiguous,
        "ALIGNED": x.aligned and outputs[0].aligned, "BLOCK": _BLOCK,
    }  # fmt: skip
    args: Arguments = {
        "x": Tensor(0), "out": Tensor(3), "size": x.size, "seed": Scalar(1), "offset": Scalar(2),
        "threshold": min(int(p * 2**32), _LARGEST_WORD), "scale": 1 / (1 - p), "length1": lengths[1], "length2": lengths[2],
        "step0": steps[0], "step1": steps[1], "step2": steps[2],
    }  # fmt: skip
    return runtime.launch("dropout", "pointwise/dropout", definitions, args, ceil_div(x.size, _WORDS * _BLOCK), _BLOCK)


LOWERINGS: dict[str, LoweringFunction] = {
    **{op: _lowering(op) for op in _DISTRIBUTIONS},
    "dropout": _dropout,
}
