"""Layer norm and RMS norm, and their gradients.

Kernels: shaders/wgsl/rowwise/norm.wgsl, norm_grad.wgsl and norm_weight_grad.wgsl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import norm
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.lowering.reduction import single_pass
from polyhal.backends.wgpu.lowering.support import group_reduce, rows
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, ROW_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_MIN_ROWS = 16
"""Minimum rows per invocation for which more splits of the weight's gradient are faster."""


def _affine(arranged: rows.Rows, **operands: InputSpec | None) -> dict[str, Any]:
    """Return the template variables of weight and bias."""
    present = [s for s in operands.values() if isinstance(s, Spec)]
    return {
        **{name.upper(): s.dtype.name if s is not None else "" for name, s in operands.items()},
        "PARAMETER_WIDTH": arranged.width if all(s.aligned for s in present) else 1,
    }


def _statistics(centred: bool) -> tuple[str, ...]:
    """Return the kernel argument names of a row's statistics."""
    return ("means", "scales") if centred else ("scales",)


def _present(names: Sequence[str], specs: Sequence[InputSpec | None]) -> dict[str, Tensor]:
    """Return the arguments of a launch by name, without absent ones."""
    return {name: Tensor(i) for i, (name, s) in enumerate(zip(names, specs, strict=True)) if s is not None}


def _forward(centred: bool) -> LoweringFunction:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        flat = norm.forward(inputs, outputs, params["axes"])
        if isinstance(flat, Declined):
            return flat
        x, out = flat
        if too_large(runtime, x, out):
            if x.ndim == 1 or x.shape[0] == 1:
                return ROW_TOO_LARGE
            whole = frozenset(range(1, len(inputs)))
            return rows.in_halves(runtime, lower, inputs, outputs, params, 0, whole)
        arranged = rows.arrange(runtime, {"x": x, "out": out}, x.ndim - 1)
        if isinstance(arranged, Declined):
            return arranged
        definitions = {
            **arranged.definitions,
            **_affine(arranged, weight=inputs[1], bias=inputs[2] if centred else None),
            "CENTRED": centred,
        }
        affine = ("weight", "bias") if centred else ("weight",)
        args: Arguments = {
            **_present(("x", *affine, "out", *_statistics(centred)), (*inputs, *outputs)),
            "eps": params["eps"],
            **arranged.args,
        }
        return runtime.launch("rowwise/norm", definitions, args, arranged.groups)

    return lower


def _backward(centred: bool) -> LoweringFunction:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        gradient = norm.backward(inputs, outputs, params)
        if isinstance(gradient, Declined):
            return gradient
        if too_large(runtime, gradient.g, gradient.x, gradient.dx):
            return OPERAND_TOO_LARGE
        arranged = rows.arrange(runtime, {"g": gradient.g, "x": gradient.x, "dx": gradient.dx}, gradient.x.ndim - 1, 2)
        if isinstance(arranged, Declined):
            return arranged
        definitions = {**arranged.definitions, **_affine(arranged, weight=inputs[2]), "CENTRED": centred}
        first_output = len(inputs)
        names = ("g", "x", "weight", *_statistics(centred), "dx")
        args: Arguments = {**_present(names, (*inputs, outputs[0])), **arranged.args}
        input_grad = runtime.launch("rowwise/norm_grad", definitions, args, arranged.groups)
        workspace = first_output + len(outputs)
        partial, splits = _weight_partials(runtime, gradient, arranged, centred, workspace)
        totals = []
        axes = Axes(((1, 0), (arranged.length, 1)), ((1, 0), (splits, arranged.length)))
        for i, out in enumerate(outputs[1:]):
            source = single_pass.Operand(Workspace(workspace), dtypes.float32, start=i * splits * arranged.length)
            result = single_pass.Operand(Tensor(first_output + 1 + i), out.dtype, out.aligned)
            totals.append(single_pass.reduce(runtime, "sum", source, axes, single_pass.Target(result, (0, 1))))
        nbytes = splits * arranged.length * len(totals) * dtypes.float32.itemsize
        return LaunchSequence((input_grad, partial, *totals), (nbytes,))

    return lower


def _weight_partials(
    runtime: Runtime, gradient: norm.NormGradient, arranged: rows.Rows, centred: bool, workspace: int
) -> tuple[Launch, int]:
    """Return the launch that reduces splits of the rows, and the number of splits."""
    vectors = arranged.length // arranged.width
    group = group_reduce.column_group(runtime, vectors, arranged.rows)
    column_blocks = ceil_div(vectors, group.vectors)
    splits = group_reduce.busy_invocations(runtime) // (column_blocks * group.group)
    splits = max(1, min(splits, ceil_div(arranged.rows, _MIN_ROWS * group.rows)))
    split_length = ceil_div(arranged.rows, splits)
    splits = ceil_div(arranged.rows, split_length)
    definitions = {"DTYPE": gradient.x.dtype.name, "CENTRED": centred, "WIDTH": arranged.width, **group.definitions}
    args: Arguments = {
        "g": Tensor(0),
        "x": Tensor(1),
        **{name: Tensor(3 + i) for i, name in enumerate(_statistics(centred))},
        "partial": Workspace(workspace),
        "rows": arranged.rows,
        "length": arranged.length,
        "split_length": split_length,
        "splits": splits,
        "column_blocks": column_blocks,
        "g_row": gradient.g_row,
        "x_row": gradient.x_row,
    }
    launch = runtime.launch("rowwise/norm_weight_grad", definitions, args, column_blocks * splits)
    return launch, splits


LOWERINGS: dict[str, LoweringFunction] = {
    "layer_norm": _forward(True),
    "layer_norm_grad": _backward(True),
    "rms_norm": _forward(False),
    "rms_norm_grad": _backward(False),
}
