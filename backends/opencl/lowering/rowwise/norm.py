"""Layer norm and root-mean-square norm with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import norm
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support import rows
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

Lower = Callable[[Runtime, Inputs, tuple[Spec, ...], Mapping[str, Any]], Launch | Declined]

_GPU_COLUMNS = 4
_GPU_ITEMS = 1 << 17
_MIN_CHUNK = 16
_TOTAL_COLUMNS, _TOTAL_SLICES = 16, 16
"""Columns whose parts a group of a GPU adds up, and the work-items that share the parts of each."""


def _forward(centred: bool) -> Lower:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        found = norm.forward(inputs, outputs, params["axes"])
        if isinstance(found, Declined):
            return found
        weight = inputs[1]
        bias = inputs[2] if centred else None
        arranged = rows.arrange(runtime, found, found[0].ndim - 1, held=1, shared=(weight, bias))
        if isinstance(arranged, Declined):
            return arranged
        definitions = arranged.definitions | {
            "CENTRED": centred,
            "WEIGHT": weight is not None,
            "BIAS": bias is not None,
            "WEIGHT_DTYPE": weight.dtype.name if weight is not None else "DTYPE",
            "BIAS_DTYPE": bias.dtype.name if bias is not None else "DTYPE",
        }
        first_output = len(inputs)
        present = [i for i, s in enumerate(inputs) if s is not None]
        tensors = [Tensor(i) for i in (*present, *range(first_output, first_output + len(outputs)))]
        eps = Constant(params["eps"], "double" if definitions["REAL"] == "double" else "float")
        parameters = [*tensors, eps, *arranged.parameters]
        return runtime.launch("norm_rows", "rowwise/norm", definitions, parameters, arranged.items, arranged.group)

    return lower


def _backward(centred: bool) -> Lower:
    def lower(
        runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        weight, statistics = inputs[2], inputs[3:]
        dweight = outputs[1]
        found = norm.backward(inputs, outputs, params)
        if isinstance(found, Declined):
            return found
        x = found.x
        last = x.ndim - 1
        arranged = rows.arrange(runtime, (found.g, x, found.dx), last, held=2, shared=(weight,), fewest=True)
        if isinstance(arranged, Declined):
            return arranged
        at_once = runtime.features.cpu or bool(arranged.definitions["ROW_VECTORS"])
        definitions = arranged.definitions | {
            "CENTRED": centred,
            "WEIGHT": weight is not None,
            "WEIGHT_DTYPE": weight.dtype.name if weight is not None else "DTYPE",
            "WEIGHT_SUMS": at_once,
        }
        present = [i for i, s in enumerate(inputs) if s is not None]
        first_output = len(inputs)
        after = first_output + len(outputs)
        partial: list[Parameter] = [Workspace(after)] if at_once else []
        parameters = [*(Tensor(i) for i in present), Tensor(first_output), *partial, *arranged.parameters]
        launches = [runtime.launch(
            "norm_rows_grad", "rowwise/norm_grad", definitions, parameters, arranged.items, arranged.group
        )]  # fmt: skip
        columns = 1 if at_once else _columns(arranged, found)
        common: dict[str, str | int | bool] = {
            "DTYPE": x.dtype.name,
            "OUT_DTYPE": dweight.dtype.name,
            "REAL": rows.real_type(x.dtype),
            "WIDTH": columns,
            "ALIGNED": columns > 1,
            "CENTRED": centred,
        }
        parts = arranged.items[0] // arranged.group[0]
        cpu, most = runtime.features.cpu, runtime.features.max_group_size
        slices = min(_TOTAL_SLICES, power_of_two_at_most(most) // _TOTAL_COLUMNS)
        if not at_once:
            sums, parts = _partial_sums(runtime, arranged, found, columns, common, range(3, 3 + len(statistics)), after)
            launches.append(sums)
        launches.append(runtime.launch(
            "norm_weight_total",
            "rowwise/norm_weight_grad",
            common | ({} if cpu else {"COLUMNS": _TOTAL_COLUMNS, "SLICES": slices}),
            [
                Workspace(after),
                *(Tensor(first_output + 1 + i) for i in range(len(outputs) - 1)),
                Constant(arranged.length, "uint"),
                Constant(parts, "uint"),
            ],
            (arranged.length, 1 if cpu else slices),
            (min(runtime.features.group_size, 64), 1) if cpu else (_TOTAL_COLUMNS, slices),
            kernel="norm_weight_total",
        ))  # fmt: skip
        item = 8 if common["REAL"] == "double" else 4
        workspace = parts * 2 * math.prod(dweight.shape) * item
        return LaunchSequence("norm_grad", launches, (workspace,))

    return lower


def _columns(arranged: rows.Rows, found: norm.NormGradient) -> int:
    """Columns that a work-item of a GPU sums side by side."""
    steps = (arranged.length, found.g_row, found.x_row)
    aligned = found.g.aligned and found.x.aligned and all(s % _GPU_COLUMNS == 0 for s in steps)
    return _GPU_COLUMNS if aligned else 1


def _partial_sums(
    runtime: Runtime,
    arranged: rows.Rows,
    found: norm.NormGradient,
    columns: int,
    definitions: Mapping[str, str | int | bool],
    statistics: Sequence[int],
    workspace: int,
) -> tuple[Launch, int]:
    """For GPUs: the launch that sums chunks of rows into a workspace, and the number of chunks."""
    blocks = ceil_div(arranged.length, columns)
    chunk = ceil_div(arranged.rows, max(1, min(ceil_div(_GPU_ITEMS, blocks), ceil_div(arranged.rows, _MIN_CHUNK))))
    parts = ceil_div(arranged.rows, chunk)
    parameters: list[Parameter] = [
        Tensor(0),
        Tensor(1),
        *(Tensor(i) for i in statistics),
        Workspace(workspace),
        Constant(arranged.rows, "uint"),
        Constant(arranged.length, "uint"),
        Constant(chunk, "uint"),
        Constant(found.g_row, "long"),
        Constant(found.x_row, "long"),
    ]
    launch = runtime.launch(
        "norm_weight_partial",
        "rowwise/norm_weight_grad",
        definitions,
        parameters,
        (blocks, parts),
        (_group(runtime, blocks), 1),
        kernel="norm_weight_partial",
    )
    return launch, parts


def _group(runtime: Runtime, blocks: int) -> int:
    return 32 if blocks <= 32 else min(runtime.features.group_size, 128)


LOWERINGS: dict[str, Lower] = {
    "layer_norm": _forward(True),
    "layer_norm_grad": _backward(True),
    "rms_norm": _forward(False),
    "rms_norm_grad": _backward(False),
}
