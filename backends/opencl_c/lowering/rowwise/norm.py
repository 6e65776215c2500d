"""Layer norm, RMS norm and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import norm
from polyhal.backends.common.problems.norm import Inputs, NormGradient
from polyhal.backends.opencl_c.lowering.rowwise.arguments import Args, Definitions, itemsize, optional, tensors
from polyhal.backends.opencl_c.lowering.support.rows import RowKernel, row_kernel
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_GPU_COLUMNS = 4
"""Columns that a work-item of a GPU sums in the first stage."""
_GPU_ITEMS = 1 << 17
"""Work-items that fill a GPU in the first stage."""
_MIN_CHUNK = 16
"""Minimum rows that a work-item of a GPU sums in the first stage."""
_TOTAL_COLUMNS, _TOTAL_SLICES = 8, 128
"""Second stage on a GPU: columns of a group, and work-items that share the partial sums of each, a power of two. Few sums for
each work-item matter more than long reads: the stage waits for memory, and there are few columns."""
_TOTAL_GROUP = 64
_PARTIAL_GROUP = 128
_LAYER_NORM_GRADIENT = (("g", "x", "weight", "means", "scales"), ("dx", "dweight", "dbias"))
_RMS_NORM_GRADIENT = (("g", "x", "weight", "scales"), ("dx", "dweight"))


def _forward(centred: bool) -> LoweringFunction:
    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        flat = norm.forward(inputs, outputs, params["axes"], casts=True)
        if isinstance(flat, Declined):
            return flat
        weight, bias = inputs[1], inputs[2] if centred else None
        kernel = row_kernel(runtime, flat, flat[0].ndim - 1, cached=1, parameters=(weight, bias))
        if isinstance(kernel, Declined):
            return kernel
        definitions = kernel.definitions | {"CENTRED": centred, "OUT_DTYPE": outputs[0].dtype.name}
        definitions |= optional("WEIGHT", weight) | optional("BIAS", bias)
        names = ("x", "weight", "bias", "out", "means", "scales") if centred else ("x", "weight", "out", "scales")
        args = tensors(dict(zip(names, (*inputs, *outputs), strict=True)))
        args |= {"eps": params["eps"], **kernel.args("x", "out")}
        return runtime.launch("rowwise/norm", definitions, args, kernel.items, kernel.group)

    return lower


def _backward(centred: bool, *, adds: bool = False) -> LoweringFunction:
    """Return the lowering of the gradients; `adds` means that an addend is the last input and a cast may be the last result."""

    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        read, written = _LAYER_NORM_GRADIENT if centred else _RMS_NORM_GRADIENT
        merged = norm.backward(inputs[: len(read)], outputs, params, casts=True)
        if isinstance(merged, Declined):
            return merged
        memory = tensors(dict(zip((*read, *(("addend",) if adds else ())), inputs, strict=True)))
        memory |= {
            name: Tensor(len(inputs) + i) for name, i in zip((*written, "cast"), range(len(outputs)), strict=False)
        }
        memory["partial"] = Workspace(len(inputs) + len(outputs))
        addend = inputs[len(read)] if adds else None
        cast = outputs[len(written)] if len(outputs) > len(written) else None
        extra = {name: s for name, s in (("addend", addend), ("cast", cast)) if isinstance(s, Spec)}
        more = {name: norm.flatten(s, params["axes"]) for name, s in extra.items()}
        if any(s is None for s in more.values()):
            return Declined("the normalised axes of an addend or result are not contiguous")
        large = {"x": merged.x, "g": merged.g, "dx": merged.dx, **{name: s for name, s in more.items() if s}}
        weight = inputs[2]
        kernel = row_kernel(
            runtime, [*large.values()], merged.x.ndim - 1, cached=2, parameters=(weight,), persistent=True
        )
        if isinstance(kernel, Declined):
            return kernel
        return _Gradient(runtime, merged, kernel, weight, outputs[1], memory, centred, large).lower()

    return lower


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The gradients of a norm: first the gradient of x, by rows, then of weight and bias, by columns."""

    runtime: Runtime
    merged: NormGradient
    kernel: RowKernel
    weight: InputSpec | None
    dweight: Spec
    memory: Args
    """All operands, and `partial`, the sums of g * (x - mean) * scale and of g, (partials, 2, length)."""
    centred: bool
    large: Mapping[str, Spec]
    """The operands that the first launch walks by rows."""

    def lower(self) -> Launch:
        fused = self.runtime.features.cpu or bool(self.kernel.definitions["ROW_VECTORS"])
        launches = [self._input_gradient(fused)]
        if fused:
            # Each group of the first launch has its own sums.
            columns, partials = 1, self.kernel.items[0] // self.kernel.group[0]
        else:
            columns, chunk = self._columns(), self._chunk()
            partials = ceil_div(self.kernel.rows, chunk)
            launches.append(self._partial_sums(columns, chunk, partials))
        launches.append(self._total(columns, partials))
        nbytes = partials * 2 * math.prod(self.dweight.shape) * itemsize(self.kernel.real)
        return LaunchSequence(launches, (nbytes,))

    def _select(self, *names: str) -> Args:
        """Return the present operands of a kernel."""
        return {name: self.memory[name] for name in names if name in self.memory}

    def _input_gradient(self, fused: bool) -> Launch:
        definitions = self.kernel.definitions | {"CENTRED": self.centred, "WEIGHT_SUMS": fused}
        definitions |= {"G_DTYPE": self.merged.g.dtype.name, "ADDEND": "addend" in self.large}
        definitions |= optional("CAST", self.large.get("cast"))
        operands = ("g", "x", "weight", "means", "scales", "addend", "dx", "cast", *(("partial",) if fused else ()))
        return self.runtime.launch(
            "rowwise/norm_grad",
            definitions | optional("WEIGHT", self.weight),
            self._select(*operands) | self.kernel.args(*self.large),
            self.kernel.items,
            self.kernel.group,
        )

    def _columns(self) -> int:
        """Return the columns that a work-item of a GPU sums, as one vector."""
        m = self.merged
        strides = (self.kernel.length, m.g_row, m.x_row)
        aligned = m.g.aligned and m.x.aligned and all(stride % _GPU_COLUMNS == 0 for stride in strides)
        return _GPU_COLUMNS if aligned else 1

    def _chunk(self) -> int:
        """Return the rows that a work-item of a GPU sums."""
        rows, blocks = self.kernel.rows, ceil_div(self.kernel.length, self._columns())
        return ceil_div(rows, max(1, min(ceil_div(_GPU_ITEMS, blocks), ceil_div(rows, _MIN_CHUNK))))

    def _definitions(self, columns: int) -> Definitions:
        return {
            "DTYPE": self.merged.x.dtype.name,
            "G_DTYPE": self.merged.g.dtype.name,
            "OUT_DTYPE": self.dweight.dtype.name,
            "REAL": self.kernel.real,
            "WIDTH": columns,
            "ALIGNED": columns > 1,
            "CENTRED": self.centred,
        }

    def _partial_sums(self, columns: int, chunk: int, partials: int) -> Launch:
        """Build the launch of the first stage on a GPU: sums of chunks of rows."""
        blocks = ceil_div(self.kernel.length, columns)
        args = self._select("g", "x", "means", "scales", "partial") | {
            "rows": self.kernel.rows,
            "length": self.kernel.length,
            "chunk": chunk,
            "g_row": self.merged.g_row,
            "x_row": self.merged.x_row,
        }
        group = 32 if blocks <= 32 else min(self.runtime.features.group_size, _PARTIAL_GROUP)
        return self.runtime.launch(
            "rowwise/norm_weight_grad",
            self._definitions(columns),
            args,
            (blocks, partials),
            (group, 1),
            kernel="norm_weight_partial",
        )

    def _total(self, columns: int, partials: int) -> Launch:
        """Build the launch of the second stage: gradients of weight and bias from the partial sums."""
        features, definitions = self.runtime.features, self._definitions(columns)
        group, slices = (min(features.group_size, _TOTAL_GROUP), 1), 1
        if not features.cpu:
            most = power_of_two_at_most(features.max_group_size) // _TOTAL_COLUMNS
            slices = min(_TOTAL_SLICES, most, power_of_two_at_least(partials))
            definitions |= {"COLUMNS": _TOTAL_COLUMNS, "SLICES": slices}
            group = (_TOTAL_COLUMNS, slices)
        args = self._select("partial", "dweight", "dbias") | {"length": self.kernel.length, "partials": partials}
        return self.runtime.launch(
            "rowwise/norm_weight_grad",
            definitions,
            args,
            (self.kernel.length, slices),
            group,
            kernel="norm_weight_total",
        )


LOWERINGS: dict[str, LoweringFunction] = {
    "layer_norm": _forward(True),
    "layer_norm_grad": _backward(True),
    "layer_norm_add_grad": _backward(True, adds=True),
    "rms_norm": _forward(False),
    "rms_norm_grad": _backward(False),
    "rms_norm_add_grad": _backward(False, adds=True),
}
