"""Cross entropy of rows, its gradient, and mean losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import cross_entropy
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl_c.lowering.pointwise.elementwise import division_options
from polyhal.backends.opencl_c.lowering.rowwise.arguments import Args, Definitions, itemsize
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.lowering.support.rows import RowKernel, real_type, row_kernel
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_VECTOR = 16
"""Bytes of an aligned vector."""
_STAGED_ROWS = 2
"""Rows of logits in the local memory of a compute unit: one arrives while the gradient of the other is written."""
_OTHER_MEMORY = 1024
"""Bytes of local memory of a group besides the row: sums of warps, and the driver's own."""
_RESIDENT = Target(groups=_STAGED_ROWS)


def _forward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    specs = cross_entropy.forward(inputs)
    if isinstance(specs, Declined):
        return specs
    logits, target = specs
    kernel = row_kernel(runtime, (logits,), 1, cached=1)
    if isinstance(kernel, Declined):
        return kernel
    smoothing = params["label_smoothing"]
    definitions = kernel.definitions | {"INDEX_DTYPE": target.dtype.name, "SMOOTHED": smoothing != 0}
    args: Args = {
        **_memory("x", "target", "loss", "lse"),
        "target_step": target.strides[0],
        "ignored": params["ignore_index"],
        "smoothing": smoothing,
        **kernel.args("x"),
    }
    return runtime.launch("rowwise/cross_entropy", definitions, args, kernel.items, kernel.group)


def _backward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    specs = cross_entropy.backward(inputs)
    if isinstance(specs, Declined):
        return specs
    g, logits, target, lse = specs
    # Columns of the result beyond the classes are padding.
    kernel = row_kernel(runtime, (logits, outputs[0]._replace(shape=logits.shape)), 1)
    if isinstance(kernel, Declined):
        return kernel
    definitions = kernel.definitions | {
        "INDEX_DTYPE": target.dtype.name,
        "GRADIENT_DTYPE": g.dtype.name,
        "PADDING": outputs[0].shape[1] - logits.shape[1],
    }
    args: Args = {
        **_memory("g", "x", "target", "lse", "dx"),
        "g_step": g.strides[0],
        "target_step": target.strides[0],
        "lse_step": lse.strides[0],
        "lse_part": lse.strides[1],
        "ignored": params["ignore_index"],
        "smoothing": params["label_smoothing"],
        **kernel.args("x", "dx"),
    }
    return runtime.launch("rowwise/cross_entropy_grad", definitions, args, kernel.items, kernel.group)


def _forward_and_backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    specs = cross_entropy.forward_and_backward(inputs)
    if isinstance(specs, Declined):
        return specs
    logits, target, g = specs
    slope = outputs[1]
    # Columns of the gradient beyond the classes are padding.
    kernel = row_kernel(runtime, (logits, slope._replace(shape=logits.shape)), 1, cached=1)
    if isinstance(kernel, Declined):
        return kernel
    staged = _staged_vectors(runtime, kernel)
    definitions = kernel.definitions | {
        "INDEX_DTYPE": target.dtype.name,
        "GRADIENT_DTYPE": g.dtype.name,
        "SMOOTHED": params["label_smoothing"] != 0,
        "PADDING": slope.shape[1] - logits.shape[1],
        "STAGED_VECTORS": staged,
        "TENSOR_CORES": runtime.features.tensor_cores,
    }
    args: Args = {
        **_memory("x", "target", "g", "loss", "dx"),
        "target_step": target.strides[0],
        "g_step": g.strides[0],
        "ignored": params["ignore_index"],
        "smoothing": params["label_smoothing"],
        **kernel.args("x", "dx"),
    }
    return runtime.launch(
        "rowwise/cross_entropy_and_grad",
        definitions,
        args,
        kernel.items,
        kernel.group,
        target=_RESIDENT if staged and runtime.features.compute_capability else None,
    )


def _staged_vectors(runtime: Runtime, kernel: RowKernel) -> int:
    """Return the whole vectors of a row for local memory; 0 if registers hold the row or two rows do not fit."""
    features, width = runtime.features, int(kernel.definitions["WIDTH"])
    if features.cpu or not features.local_memory_is_real or not kernel.definitions["ALIGNED"]:
        return 0
    vectors = kernel.length // width
    fits = _STAGED_ROWS * (_VECTOR * vectors + _OTHER_MEMORY) <= features.static_local_memory
    return vectors if fits and not kernel.definitions["ROW_VECTORS"] else 0


def _mean(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    specs = cross_entropy.mean(inputs)
    if isinstance(specs, Declined):
        return specs
    losses, target = specs
    args: Args = {
        **_memory("losses", "target", "out", "scale"),
        "rows": losses.shape[0],
        "losses_step": losses.strides[0],
        "target_step": target.strides[0],
        "ignored": params["ignore_index"],
    }
    return _single_group(runtime, "mean_loss", losses, target, args)


def _mean_with_gradient(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    specs = cross_entropy.mean_with_gradient(inputs, cpu=runtime.features.cpu)
    if isinstance(specs, Declined):
        return specs
    logits, target = specs
    rows, classes = logits.shape
    args: Args = {
        **_memory("x", "target", "out", "dx"),
        "rows": rows,
        "classes": classes,
        "x_row": logits.strides[0],
        "x_step": logits.strides[1],
        "target_step": target.strides[0],
        "ignored": params["ignore_index"],
        "smoothing": params["label_smoothing"],
    }
    return _single_group(runtime, "mean_cross_entropy", logits, target, args)


def _memory(*names: str) -> Args:
    """Return the op's inputs and outputs by kernel parameter name."""
    return {name: Tensor(i) for i, name in enumerate(names)}


def _single_group(runtime: Runtime, kernel: str, x: Spec, target: Spec, args: Args) -> Launch:
    """Build a launch of one group, whose work-items take whole rows of `x`."""
    real = real_type(x.dtype)
    group = 1 if runtime.features.cpu else cross_entropy.group_of_rows(x.shape[0], runtime.features.max_group_size)
    definitions: Definitions = {
        "DTYPE": x.dtype.name,
        "INDEX_DTYPE": target.dtype.name,
        "REAL": real,
        "GROUP": group,
        "EXCHANGE": exchange(runtime, itemsize(real), group, group),
    }
    return runtime.launch(f"rowwise/{kernel}", definitions, args, (group,), (group,), options=division_options(runtime))


LOWERINGS: dict[str, LoweringFunction] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
    "cross_entropy_rows_and_grad": _forward_and_backward,
    "mean_loss": _mean,
    "mean_cross_entropy": _mean_with_gradient,
}
