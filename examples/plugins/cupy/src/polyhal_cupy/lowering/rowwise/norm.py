"""Layer norm and root-mean-square norm with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import norm
from polyhal.backends.common.problems.norm import Inputs, NormGradient
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.lowering.support.arguments import present
from polyhal_cupy.lowering.support.rows import Rows
from polyhal_cupy.runtime import Runtime

_BLOCKS_PER_UNIT = 4
_SPAN_THREADS = 32
_LINES = 8
_BLOCK = _SPAN_THREADS * _LINES


def dtype_name(spec: InputSpec | None) -> str:
    """Return the dtype name of an operand, which may be absent, in a kernel's definitions."""
    return "DTYPE" if spec is None else spec.dtype.name


def _forward(centred: bool) -> LoweringFunction:
    name = "layer_norm" if centred else "rms_norm"

    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        found = norm.forward(inputs, outputs, params["axes"])
        if isinstance(found, Declined):
            return found
        weight = inputs[1]
        bias = inputs[2] if centred else None
        arranged = rows.arrange(found, found[0].ndim - 1)
        if isinstance(arranged, Declined):
            return arranged
        definitions = arranged.definitions | {
            "CENTRED": centred, "WEIGHT": weight is not None, "BIAS": bias is not None, "WEIGHT_DTYPE": dtype_name(weight),
            "BIAS_DTYPE": dtype_name(bias),
        }  # fmt: skip
        names = ("out", "means", "scales") if centred else ("out", "scales")
        args: dict[str, Argument] = {
            **present(("x", "weight", "bias")[: len(inputs)], inputs),
            **{o: Tensor(len(inputs) + i) for i, o in enumerate(names)}, "eps": params["eps"], **arranged.args("x", "out"),
        }  # fmt: skip
        return runtime.launch(
            name, "rowwise/norm", definitions, args, arranged.blocks, arranged.threads, kernel="norm_rows"
        )

    return lower


def _backward(centred: bool) -> LoweringFunction:
    name = "layer_norm_grad" if centred else "rms_norm_grad"

    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        found = norm.backward(inputs, outputs, params)
        if isinstance(found, Declined):
            return found
        arranged = rows.arrange((found.g, found.x, found.dx), found.x.ndim - 1)
        if isinstance(arranged, Declined):
            return arranged
        weight = inputs[2]
        definitions = arranged.definitions | {
            "CENTRED": centred, "WEIGHT": weight is not None, "BIAS": False, "WEIGHT_DTYPE": dtype_name(weight)
        }  # fmt: skip
        args = {
            **present(_grad_operands(centred), inputs), "dx": Tensor(len(inputs)), **arranged.args("g", "x", "dx")
        }  # fmt: skip
        input_grad = runtime.launch(
            name, "rowwise/norm", definitions, args, arranged.blocks, arranged.threads, kernel="norm_rows_grad"
        )
        weights, workspace = _weights(
            runtime, name, found, arranged, len(inputs), len(outputs), outputs[1].dtype, centred
        )
        return LaunchSequence((input_grad, *weights), (workspace,))

    return lower


def _grad_operands(centred: bool) -> tuple[str, ...]:
    """Return the names of the gradient kernels' inputs."""
    return ("g", "x", "weight", "means", "scales") if centred else ("g", "x", "weight", "scales")


def _weights(
    runtime: Runtime,
    name: str,
    found: NormGradient,
    arranged: Rows,
    inputs: int,
    outputs: int,
    out_dtype: DType,
    centred: bool,
) -> tuple[list[Launch], int]:
    """Return launches for the gradients of weight and bias, and the bytes of their workspace."""
    x, width, length = found.x, arranged.width, arranged.length
    spans = ceil_div(length, _SPAN_THREADS * width)
    parts = max(1, min(_BLOCKS_PER_UNIT * runtime.units // spans, arranged.count // _LINES))
    chunk = ceil_div(arranged.count, parts)
    parts = ceil_div(arranged.count, chunk)
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "OUT_DTYPE": out_dtype.name, "REAL": rows.real_type(x.dtype), "WIDTH": width, "CENTRED": centred,
        "BLOCK": _BLOCK,
    }  # fmt: skip
    workspace = inputs + outputs
    partial = runtime.launch(
        f"{name}.weight", "rowwise/norm_weight_grad", definitions,
        {
            **{o: Tensor(i) for i, o in enumerate(_grad_operands(centred)) if o != "weight"},
            "partial": Workspace(workspace), "rows": arranged.count, "length": length, "split_length": chunk,
            "g_row": found.g_row, "x_row": found.x_row,
        },
        spans * parts, _BLOCK, kernel="norm_weight_partial",
    )  # fmt: skip
    total = runtime.launch(
        f"{name}.weight_total", "rowwise/norm_weight_grad", definitions,
        {
            "partial": Workspace(workspace),
            **{o: Tensor(inputs + 1 + i) for i, o in enumerate(("weight", "bias")[: outputs - 1])},
            "length": length, "splits": parts,
        },
        ceil_div(length, _SPAN_THREADS), _BLOCK, kernel="norm_weight_total",
    )  # fmt: skip
    return [partial, total], parts * 2 * length * accumulator(x.dtype).itemsize


LOWERINGS: dict[str, LoweringFunction] = {
    "layer_norm": _forward(True),
    "layer_norm_grad": _backward(True),
    "rms_norm": _forward(False),
    "rms_norm_grad": _backward(False),
}
