"""Cross entropy of rows, its gradient, and means. Kernels: shaders/wgsl/rowwise/*cross_entropy*.wgsl and mean_loss.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import cross_entropy
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.wgpu.lowering.support import group_reduce, rows
from polyhal.backends.wgpu.lowering.support.windows import ROW_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _forward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    operands = cross_entropy.forward(inputs)
    if isinstance(operands, Declined):
        return operands
    logits, target = operands
    if too_large(runtime, logits):
        if logits.shape[0] == 1:
            return ROW_TOO_LARGE
        return rows.in_halves(runtime, _forward, inputs, outputs, params, 0)
    arranged = rows.arrange(runtime, {"x": logits}, 1)
    if isinstance(arranged, Declined):
        return arranged
    definitions = {**arranged.definitions, "INDEX_DTYPE": target.dtype.name, "SMOOTHED": params["label_smoothing"] != 0}
    args: Arguments = {
        "x": Tensor(0),
        "labels": Tensor(1),
        "loss": Tensor(2),
        "lse": Tensor(3),
        "labels_step": target.strides[0],
        **_options(params),
        **arranged.args,
    }
    return runtime.launch("rowwise/cross_entropy", definitions, args, arranged.groups)


def _backward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    operands = cross_entropy.backward(inputs)
    if isinstance(operands, Declined):
        return operands
    g, logits, target, lse = operands
    if params["columns"]:
        return Declined("rows with more columns than classes")
    if too_large(runtime, logits, outputs[0]):
        if logits.shape[0] == 1:
            return ROW_TOO_LARGE
        return rows.in_halves(runtime, _backward, inputs, outputs, params, 0)
    arranged = rows.arrange(runtime, {"x": logits, "dx": outputs[0]}, 1)
    if isinstance(arranged, Declined):
        return arranged
    definitions = {**arranged.definitions, "INDEX_DTYPE": target.dtype.name, "GRADIENT_DTYPE": g.dtype.name}
    args: Arguments = {
        "g": Tensor(0),
        "x": Tensor(1),
        "labels": Tensor(2),
        "lse": Tensor(3),
        "dx": Tensor(4),
        "g_step": g.strides[0],
        "labels_step": target.strides[0],
        "lse_step": lse.strides[0],
        "lse_part": lse.strides[1],
        **_options(params),
        **arranged.args,
    }
    return runtime.launch("rowwise/cross_entropy_grad", definitions, args, arranged.groups)


def _mean(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    operands = cross_entropy.mean(inputs)
    if isinstance(operands, Declined):
        return operands
    losses, target = operands
    args: Arguments = {
        "losses": Tensor(0),
        "labels": Tensor(1),
        "out": Tensor(2),
        "scale": Tensor(3),
        "losses_step": losses.strides[0],
        "labels_step": target.strides[0],
        "ignored": params["ignore_index"],
        "rows": losses.shape[0],
        "length": 0,
    }
    return _single_group(runtime, "mean_loss", losses, target, args)


def _mean_with_gradient(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    operands = cross_entropy.mean_with_gradient(inputs, cpu=runtime.features.cpu)
    if isinstance(operands, Declined):
        return operands
    logits, target = operands
    args: Arguments = {
        "x": Tensor(0),
        "labels": Tensor(1),
        "out": Tensor(2),
        "dx": Tensor(3),
        "x_row": logits.strides[0],
        "x_step": logits.strides[1],
        "labels_step": target.strides[0],
        **_options(params),
        "rows": logits.shape[0],
        "length": logits.shape[1],
    }
    return _single_group(runtime, "mean_cross_entropy", logits, target, args)


def _single_group(runtime: Runtime, kernel: str, x: Spec, target: Spec, args: Arguments) -> Launch:
    """Return a launch of one workgroup, whose invocations take whole rows of `x`."""
    features = runtime.features
    size = features.group_size if features.cpu else cross_entropy.group_of_rows(x.shape[0], features.max_group_size)
    groups = group_reduce.definitions(runtime, size, size)
    definitions = {**groups, "DTYPE": x.dtype.name, "INDEX_DTYPE": target.dtype.name}
    return runtime.launch(f"rowwise/{kernel}", definitions, args, 1)


def _options(params: Params) -> dict[str, float]:
    """Return the ignored class and the label smoothing."""
    return {"ignored": params["ignore_index"], "smoothing": params["label_smoothing"]}


LOWERINGS: dict[str, LoweringFunction] = {
    "cross_entropy_rows": _forward,
    "cross_entropy_rows_grad": _backward,
    "mean_loss": _mean,
    "mean_cross_entropy": _mean_with_gradient,
}
