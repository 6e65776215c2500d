"""Layer norm and root-mean-square norm with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import norm
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.launch import DispatchLaunch, Parameter
from polyhal.backends.wgpu.lowering.reduction import passes
from polyhal.backends.wgpu.lowering.support import group_reduce, rows
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_CHUNK = 16
"""Rows that each invocation sums at least before a second pass adds up the chunks."""


def _small(arranged: rows.Rows, **given: InputSpec | None) -> dict[str, Any]:
    """The definitions of weight and bias."""
    present = [s for s in given.values() if isinstance(s, Spec)]
    return {
        **{name.upper(): s.dtype.name if s is not None else "" for name, s in given.items()},
        "SMALL_WIDTH": arranged.width if all(s.aligned for s in present) else 1,
    }


def _forward(centred: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        found = norm.forward(inputs, outputs, params["axes"])
        if isinstance(found, Declined):
            return found
        x, out = found
        if too_large(runtime, x, out):
            if x.ndim == 1 or x.shape[0] == 1:
                return Declined("a row is larger than what a kernel can see at once")
            whole = frozenset(range(1, len(inputs)))
            return rows.in_halves("norm_rows", runtime, lower, inputs, outputs, params, 0, whole)
        arranged = rows.arrange(runtime, found, x.ndim - 1)
        if isinstance(arranged, Declined):
            return arranged
        definitions = {
            **arranged.definitions, **_small(arranged, weight=inputs[1], bias=inputs[2] if centred else None),
            "CENTRED": centred,
        }  # fmt: skip
        tensors = [Tensor(i) for i, s in enumerate((*inputs, *outputs)) if s is not None]
        parameters = [*tensors, Constant(params["eps"], "float"), *arranged.parameters]
        return runtime.launch("norm_rows", "rowwise/norm", definitions, parameters, arranged.groups)

    return lower


def _backward(centred: bool) -> LoweringFunction:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        found = norm.backward(inputs, outputs, params)
        if isinstance(found, Declined):
            return found
        if too_large(runtime, found.g, found.x, found.dx):
            return Declined("an operand is larger than what a kernel can see at once")
        arranged = rows.arrange(runtime, (found.g, found.x, found.dx), found.x.ndim - 1, 2)
        if isinstance(arranged, Declined):
            return arranged
        definitions = {**arranged.definitions, **_small(arranged, weight=inputs[2]), "CENTRED": centred}
        first_output = len(inputs)
        tensors = [Tensor(i) for i, s in enumerate((*inputs, outputs[0])) if s is not None]
        input_grad = runtime.launch(
            "norm_rows_grad", "rowwise/norm_grad", definitions, [*tensors, *arranged.parameters], arranged.groups
        )
        after = first_output + len(outputs)
        partial, parts = _weight_partial(runtime, found, arranged, centred, after)
        totals = []
        axes = Axes(((1, 0), (arranged.length, 1)), ((1, 0), (parts, arranged.length)))
        for i, out in enumerate(outputs[1:]):
            source = passes.Operand(Workspace(after), dtypes.float32, start=i * parts * arranged.length)
            result = passes.Operand(Tensor(first_output + 1 + i), out.dtype, out.aligned)
            totals.append(passes.one_pass(runtime, "sum", source, axes, passes.Target(result, (0, 1))))
        workspace = parts * arranged.length * len(totals) * dtypes.float32.itemsize
        return LaunchSequence("norm_grad", (input_grad, partial, *totals), (workspace,))

    return lower


def _weight_partial(
    runtime: Runtime, found: norm.NormGradient, arranged: rows.Rows, centred: bool, workspace: int
) -> tuple[DispatchLaunch, int]:
    """The sums over chunks of rows, and how many chunks there are."""
    block = group_reduce.block(runtime, arranged.length // arranged.width, arranged.rows)
    blocks = ceil_div(arranged.length // arranged.width, block.vectors)
    parts = group_reduce.workers(runtime) // (blocks * block.group)
    parts = max(1, min(parts, ceil_div(arranged.rows, _CHUNK * block.tall)))
    chunk = ceil_div(arranged.rows, parts)
    parts = ceil_div(arranged.rows, chunk)
    definitions = {
        "DTYPE": found.x.dtype.name, "CENTRED": centred, "WIDTH": arranged.width, **block.definitions
    }  # fmt: skip
    numbers = (arranged.rows, arranged.length, chunk, parts, blocks, found.g_row, found.x_row)
    parameters: list[Parameter] = [
        Tensor(0), Tensor(1), *(Tensor(i) for i in ((3, 4) if centred else (3,))), Workspace(workspace),
        *(Constant(n, "uint") for n in numbers),
    ]  # fmt: skip
    launch = runtime.launch("norm_weight_grad", "rowwise/norm_weight_grad", definitions, parameters, blocks * parts)
    return launch, parts


LOWERINGS: dict[str, LoweringFunction] = {
    "layer_norm": _forward(True),
    "layer_norm_grad": _backward(True),
    "rms_norm": _forward(False),
    "rms_norm_grad": _backward(False),
}
