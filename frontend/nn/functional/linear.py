"""Affine maps and lookups."""

from __future__ import annotations

from collections.abc import Callable

from polyhal import functions as ops
from polyhal.hal import dispatch, dtypes
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_fused_linear = FUNCTIONS["fused_linear"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "gelu": ops.gelu,
    "gelu_tanh": lambda x: ops.gelu(x, "tanh"),
    "silu": ops.silu,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Tensor:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,); then `activation`, in the same kernel if possible.

    Activations are relu, gelu, gelu_tanh, silu, sigmoid and tanh. Raises ValueError for others.
    """
    if activation is None:
        return ops.linear(x, weight, bias)
    function = _ACTIVATIONS.get(activation)
    if function is None:
        raise ValueError(message("linear", f"activation {activation!r}", expected=f"one of {', '.join(_ACTIVATIONS)}"))
    if _is_fused(activation, x, weight, bias):
        result: Tensor = _fused_linear(x, weight, bias, activation=activation)
        return result
    return function(ops.linear(x, weight, bias))


def _is_fused(activation: str, *inputs: Tensor | None) -> bool:
    """Whether to use one op. Gradients of most activations need the product itself; a captured step is fused later."""
    if dispatch.thread.executor.fuses_later:
        return False
    taped = dispatch.thread.grad_enabled and any(x is not None and x.requires_grad for x in inputs)
    return activation == "relu" or not taped


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (R, W) by index: (...) to (..., W). Row `padding_idx` receives no gradient."""
    out: Tensor = ops.embedding(weight, index)
    if padding_idx is not None and weight.requires_grad:
        padding_idx %= weight.shape[0]
        out = ops.where(ops.unsqueeze(ops.equal(index, padding_idx), -1), weight.detach()[padding_idx], out)
    return out


def one_hot(index: Tensor, num_classes: int = -1) -> Tensor:
    """Encode integers (...) as rows (..., num_classes) with a single 1, in the dtype of `index`.

    `num_classes` defaults to one more than the largest integer, which waits for the device.
    """
    if num_classes < 0:
        num_classes = int(ops.max(index).item()) + 1 if index.size else 0
    classes = ops.arange(0, num_classes, 1, dtypes.int32, device=index.device)
    return ops.equal(ops.unsqueeze(index, -1), classes).to(index.dtype)
