"""Fused attention: PyTorch's overrideable op, and the op that it selects for the CPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, cast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("_scaled_dot_product_fused_attention_overrideable")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    scale: float | None = None,
) -> Any:
    """Return the result and the logarithms of the sums of its weights; None for the results of dropout and ragged batches.

    The logarithms have the shape that PyTorch documents, because compiled programs rely on it: heads without a batch are a
    batch of one. A logarithm loses one of its two parts where a mask makes scores large, so that both take the place of the
    seed of dropout.
    """
    if dropout_p:
        raise UnsupportedArgumentsError
    out, parts = F["attention"](q, k, v, mask, is_causal, scale)
    lse = F["sum"](parts, -1)
    lse = F["reshape"](lse, (1, *lse.shape)) if q.ndim == 3 else lse
    return out, lse, None, None, q.shape[-2], k.shape[-2], parts, None, None


@aten("_scaled_dot_product_fused_attention_overrideable_backward")
def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    wanted: Any,
    out: Tensor,
    lse: Tensor,
    starts_q: Any,
    starts_k: Any,
    longest_q: int,
    longest_k: int,
    dropout_p: float,
    is_causal: bool,
    seed: Tensor | None,
    offset: Tensor | None,
    scale: float | None = None,
) -> Any:
    """Return gradients of queries, keys, values and an additive mask."""
    # Compiled programs pass a number as the seed.
    kept = seed is not None and seed.ndim > 0
    parts = seed if kept else _parts(lse, q, k, v, mask, is_causal, scale)
    found = F["attention_grad"](grad, q, k, v, mask, out, parts, is_causal, scale)
    if not wanted[3] or not _is_added(mask):
        return *found, None
    return *found, _mask_backward(grad, q, k, v, mask, out, parts, scale)


def _is_added(mask: Tensor | None) -> bool:
    """Return whether a mask is added to the scores."""
    return mask is not None and mask.dtype.is_floating_point


def _mask_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Any, out: Tensor, parts: Tensor | None, scale: float | None
) -> Any:
    """Return the gradient of the scores, summed over broadcast axes of the mask. Allocates memory for all scores."""
    scores = F["matmul"](q, F["transpose"](k)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale) + mask
    top, logarithm = F["split"](parts, (1, 1), -1)
    weights = F["exp"]((scores - top) - logarithm)
    slope = F["matmul"](grad, F["transpose"](v)) - F["sum"](grad * out, -1, True)
    return cast(F["sum_to"](weights * slope, mask.shape), mask.dtype)


def _times(q: Tensor, k: Tensor, dropout_p: float, is_causal: bool) -> int:
    """Return how many query heads share a key head. Raises UnsupportedArgumentsError for shapes or options without an op."""
    fits = q.ndim == 4 and k.shape[0] == q.shape[0] and q.shape[1] % k.shape[1] == 0
    if dropout_p or not fits or (is_causal and q.shape[-2] != k.shape[-2]):
        raise UnsupportedArgumentsError
    return int(q.shape[1] // k.shape[1])


@aten("_scaled_dot_product_flash_attention_for_cpu")
def attention_of_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """Compute PyTorch's attention op for CPU tensors, which compiled graphs contain: the result and the logsumexps."""
    times = _times(q, k, dropout_p, is_causal)
    if times > 1:
        k, v = (F["repeat_interleave"](x, times, 1) for x in (k, v))
    out, parts = F["attention"](q, k, v, attn_mask, is_causal, scale)
    return out, F["sum"](parts, -1)


def _parts(
    lse: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Any:
    """Split logsumexps in two parts. With a mask, large scores absorb the second part, so both are recomputed."""
    if _is_added(mask):
        return F["attention"](q, k, v, mask, is_causal, scale)[1]
    lse = F["reshape"](lse, q.shape[:-1])
    return F["stack"]((lse, F["full"](lse.shape, 0, lse.dtype, device=lse.device)), -1)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_of_cpu_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    """Return gradients of queries, keys and values, summed over query heads that share keys."""
    times = _times(q, k, dropout_p, is_causal)
    wide_k, wide_v = (F["repeat_interleave"](x, times, 1) for x in (k, v)) if times > 1 else (k, v)
    parts = _parts(lse, q, wide_k, wide_v, attn_mask, is_causal, scale)
    of_q, *others = F["attention_grad"](grad, q, wide_k, wide_v, attn_mask, out, parts, is_causal, scale)
    if times == 1:
        return of_q, *others
    shape = (k.shape[0], k.shape[1], times, *k.shape[2:])
    return (of_q, *(F["sum"](F["reshape"](x, (*shape[:-1], x.shape[-1])), 2) for x in others))
