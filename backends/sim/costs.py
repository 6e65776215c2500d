"""Costs of kernels: floating-point operations by the op's own rule, and bytes of the operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.backends.sim.timing import KernelCost
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_FLOPS_PER_ELEMENT = {
    "norm": 8,
    "loss": 8,
    "optimizer": 10,
    "sorting": 20,
    "recurrent": 12,
    "random": 20,
    "resampling": 8,
}
"""Operations per element of the largest operand, for families of ops without their own rule."""
_DIRECTED = ("attention", "convolution", "norm", "pooling")
"""Families whose gradients have their own kernels. Gradients of products are products."""
_LAUNCHES = {
    "batch_norm": 2,
    "batch_norm_relu": 2,
    "batch_norm_add_relu": 2,
    "conv2d_batch_norm": 3,
    "batch_norm_grad": 3,
    "batch_norm_relu_grad": 3,
    "layer_norm_grad": 2,
    "layer_norm_add_grad": 2,
}
"""Kernels of ops that reduce across work-groups before they use the sums; 1 for all others."""

_TENSORS_PER_LAUNCH = 24
"""Maximum number of tensors per kernel of an op on a list, bounded by the size of kernel parameters."""


def kernel_cost(op: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Params) -> KernelCost:
    """Return the cost of an op for these specs."""
    family, flops = OPS[op].family, op_flops(op, inputs, outputs, params)
    kind = _kind(op, family, params)
    if family == "elementwise" and outputs and flops > outputs[0].size:
        kind = "transcendental_elementwise"
    cost = _cost(kind, inputs, outputs, flops)._replace(launches=_launches(op, inputs, params))
    if not outputs or not outputs[0].size or family not in ("contraction", "fused", "convolution"):
        return cost
    cost = cost._replace(outputs=outputs[0].size, depth=flops // (2 * outputs[0].size))
    return _convolution(op, cost, inputs, outputs) if family == "convolution" else cost


def _launches(op: str, inputs: Sequence[InputSpec | None], params: Params) -> int:
    if op == "norms":
        return math.ceil(len(inputs) / _TENSORS_PER_LAUNCH) + 1
    if op == "means_along":
        return math.ceil(len(inputs) / _TENSORS_PER_LAUNCH)
    if op == "foreach_elementwise":
        return -(-int(params["count"]) // _TENSORS_PER_LAUNCH)
    return _LAUNCHES.get(op, 1)


def _kind(op: str, family: str, params: Params) -> str:
    """Return the family, prefixed with qualifiers of the kernel: gradient, strides, overlapping windows.

    A profile that has no figure for `weight_gradient_strided_convolution` falls back to the figure of a suffix, such as
    `strided_convolution`.
    """
    if op == "fused_elementwise":
        return "elementwise"
    if family == "pooling" and any(
        k > s for k, s in zip(params.get("kernel", ()), params.get("stride") or (), strict=False)
    ):
        family = "overlapping_pooling"
    if family == "convolution" and any(s > 1 for s in params.get("stride") or ()):
        family = "strided_convolution"
    if not op.endswith("_grad") or not family.endswith(_DIRECTED):
        return family
    operand = next((o for o in ("input", "weight") if op.endswith(f"_{o}_grad")), "")
    return "_".join(filter(None, (operand, "gradient", family)))


def _convolution(op: str, cost: KernelCost, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> KernelCost:
    """Add the fields that depend on the image: the row length of the convolution's result, and bytes of packed operands."""
    tensors = [s for s in inputs if isinstance(s, Spec)]
    image = outputs[0] if op == "conv2d" else tensors[0]
    second = "image" if op == "conv2d_weight_grad" else "weights"
    packed = tuple(zip(("image", second), map(touched_bytes, tensors), strict=False))
    return cost._replace(row=image.shape[-1], packed=packed)


def op_flops(op: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Params) -> int:
    """Return the operations of an op: by its rule, or else from its family and the size of the largest operand."""
    definition = OPS[op]
    if definition.flops is not None:
        return int(definition.flops(tuple(inputs), tuple(outputs), dict(params)))
    tensors = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
    largest = max((s.size for s in tensors), default=0)
    if definition.family == "pooling" and "kernel" in params:
        return _pooling_flops(op, largest, outputs, params)
    if op == "fused_elementwise":
        return len(params["steps"]) * largest
    backward = 2 if definition.family == "norm" and op.endswith("_grad") else 1
    return backward * _FLOPS_PER_ELEMENT.get(definition.family, 1) * largest


def _pooling_flops(op: str, largest: int, outputs: Sequence[Spec], params: Params) -> int:
    """Count one comparison or addition per element of a window. The gradient visits all windows that contain an element."""
    window: int = math.prod(params["kernel"])
    if not op.endswith("_grad"):
        return outputs[0].size * window
    stride: int = math.prod(params.get("stride") or params["kernel"])
    return largest * max(1, window // stride) * window


def member_cost(name: str, inputs: Sequence[Spec], output: Spec) -> KernelCost:
    """Return the cost of a core member of the contract."""
    if name == "matmul":
        return _cost("contraction", inputs, (output,), 2 * output.size * inputs[0].shape[-1])
    if name == "reduce":
        return _cost("reduction", inputs, (output,), inputs[0].size)
    if name in ("gather", "scatter_add"):
        return _cost("indexing", (inputs[0], output, output), (), output.size)
    return _cost("elementwise", inputs, (output,), output.size)


def elementwise_cost(inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> KernelCost:
    """Return the cost of a kernel of unknown content: one operation per element that it writes."""
    return _cost("elementwise", inputs, outputs, sum(s.size for s in outputs))


def _cost(family: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], flops: int) -> KernelCost:
    tensors = [s for s in inputs if isinstance(s, Spec)]
    floats = [s.dtype for s in (*tensors, *outputs) if s.dtype.is_floating_point]
    nbytes = sum(map(touched_bytes, (*tensors, *outputs)))
    if family == "indexing":  # about as many bytes of the table are read as are written
        written = sum(map(touched_bytes, outputs))
        nbytes = min(nbytes, 4 * written) if written else nbytes
    return KernelCost(family, floats[0] if floats else dtypes.float32, flops, nbytes)


def touched_bytes(spec: Spec) -> int:
    """Return the bytes of a tensor's elements; an element repeated by a stride of 0 counts once."""
    elements = math.prod(n for n, stride in zip(spec.shape, spec.strides, strict=True) if stride)
    return elements * spec.dtype.itemsize
