"""Cross entropy of rows of logits: one fused op for the losses and one for their gradient.

PyTorch composes it of a log-softmax and a gather, which store three matrices of the size of the logits and round the
logarithms in half precision. Therefore the whole op is overridden above autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.forward_ad import unpack_dual

from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops import FUNCTIONS
from polyhal.torch import private, tensors
from polyhal.torch.device import NAME

_aten: Any = torch.ops.aten
_unpack_dual: Callable[..., Any] = unpack_dual
_NONE, _MEAN = 0, 1
"""Reductions; 2 is the sum."""


class _Rows(torch.autograd.Function):
    """`run(logits, target, reduction, ignore_index, label_smoothing, dtype of the result)` for matrices of logits.

    With `create_graph`, gradients are computed by PyTorch's composition.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        reduction: int,
        ignore_index: int,
        smoothing: float,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        x, classes = tensors.unwrap(logits), tensors.unwrap(target)
        out, lse = FUNCTIONS["cross_entropy_rows"](x, classes, ignore_index, smoothing)
        kept = [lse]
        if reduction == _MEAN:
            out, scale = FUNCTIONS["mean_loss"](out, classes, ignore_index)
            kept.append(scale)
        elif reduction != _NONE:
            out = FUNCTIONS["sum"](out)
        ctx.options = (reduction, ignore_index, smoothing)
        ctx.save_for_backward(logits, target, *map(tensors.wrap, kept))
        return tensors.wrap(FUNCTIONS["cast"](out, tensors.dtype_of(dtype)))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        logits, target, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(logits, target, ctx.options, grad), None, None, None, None, None
        # This PyTorch op marks the loss as differentiated in recorded steps.
        each = tensors.unwrap(grad.expand(target.shape))
        x, classes = tensors.unwrap(logits), tensors.unwrap(target)
        lse, *scale = map(tensors.unwrap, kept)
        slope = FUNCTIONS["cast"](each, accumulator(x.dtype))
        if scale:
            slope = slope * scale[0]
        found = FUNCTIONS["cross_entropy_rows_grad"](slope, x, classes, lse, *ctx.options[1:])
        return tensors.wrap(found), None, None, None, None, None


_run: Callable[..., torch.Tensor] = _Rows.apply


def _differentiable(
    logits: torch.Tensor, target: torch.Tensor, options: Sequence[float], grad: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the logits by PyTorch's differentiable ops."""
    with torch.enable_grad():
        loss = private.decomposed(_aten.cross_entropy_loss.default, logits, target, None, *options)
        return torch.autograd.grad(loss, logits, grad.to(loss.dtype), create_graph=True)[0]


def _is_ours(logits: torch.Tensor, target: torch.Tensor, smoothing: float) -> bool:
    """Return whether these are a matrix of logits and its classes in device memory, without forward-mode gradients."""
    return (
        target.ndim == 1
        and logits.ndim == 2
        and logits.shape[:1] == target.shape
        and logits.is_floating_point()
        and target.dtype in (torch.int64, torch.uint8)
        and bool(logits.numel())
        and 0 <= smoothing <= 1
        and tensors.have_memory(logits, target)
        and _unpack_dual(logits).tangent is None
    )


def cross_entropy_loss(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Compute the loss by Polyhal's ops where they apply, else by PyTorch's composition; in float32 under autocast."""
    if weight is not None or not _is_ours(logits, target, label_smoothing):
        composed: torch.Tensor = private.decomposed(
            _aten.cross_entropy_loss.default, logits, target, weight, reduction, ignore_index, label_smoothing
        )
        return composed
    wide = torch.is_autocast_enabled(NAME) and logits.dtype is not torch.float64
    dtype = torch.float32 if wide else logits.dtype
    return _run(logits, target, reduction, ignore_index, label_smoothing, dtype)
