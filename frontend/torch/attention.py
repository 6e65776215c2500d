"""Attention, overridden above autograd, because PyTorch selects kernels of devices in a C++ table that it cannot extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyhal.torch import private

_aten = torch.ops.aten


def is_fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, dropout_p: float, is_causal: bool
) -> bool:
    """Return whether Polyhal's op supports this attention: no dropout, one key head per query head, no second gradient."""
    square = query.ndim >= 2 and query.shape[-2] == key.shape[-2]
    return (
        not dropout_p
        and private.may_use_fused_attention()
        and (square or not is_causal)
        and not (mask is not None and is_causal)
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    )


def _grouped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool
) -> Any:
    """Stack the queries of heads that share keys, so that keys are not copied; None if masks of rows differ."""
    heads, (batch, kept, length) = query.shape[-3], key.shape[:-1]
    one_row = mask is None or ((mask.ndim < 2 or mask.shape[-2] == 1) and (mask.ndim < 3 or mask.shape[-3] == 1))
    if is_causal or not one_row or query.shape[0] != batch or heads % kept or value.shape[1:-1] != (kept, length):
        return None
    return query.reshape(batch, kept, -1, query.shape[-1])


def _heads_fit(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether the query heads of each sequence are a multiple of its key heads."""
    return (
        key.ndim == 4
        and query.shape[0] == key.shape[0]
        and query.shape[1] % key.shape[1] == 0
        and value.shape[:-1] == key.shape[:-1]
    )


def _shared(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return four-dimensional operands whose batch has the key heads, so that keys and values are views for all query heads."""
    heads, (batch, kept) = query.shape[-3], key.shape[:2]
    times = heads // kept
    query = query.reshape(batch * kept, times, *query.shape[-2:])
    key, value = (x.reshape(batch * kept, 1, *x.shape[-2:]).expand(-1, times, -1, -1) for x in (key, value))
    if mask is not None and any(n > 1 for n in mask.shape[:-2]):
        wide = mask.expand(batch, heads, *mask.shape[-2:])
        mask = wide.reshape(batch * kept, times, *mask.shape[-2:])
    return query, key, value, mask


def _check_dtypes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> None:
    """Raise RuntimeError, as PyTorch does, for operands of several dtypes, and for masks of other ones."""
    dtype = query.dtype
    if key.dtype is not dtype or value.dtype is not dtype:
        raise RuntimeError(
            "[scaled_dot_product_attention] expected query, key and value to have the same dtype, but got "
            f"{dtype}, {key.dtype} and {value.dtype}; cast with .to(query.dtype)"
        )
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, dtype):
        raise RuntimeError(
            f"[scaled_dot_product_attention] attn_mask is {mask.dtype}; expected torch.bool, torch.float32 or the dtype of "
            f"the query, {dtype}; cast it with attn_mask.to(query.dtype)"
        )


def choose(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> int:
    """Return the kernel for PyTorch to use: Polyhal's, or PyTorch's composition of products and a softmax."""
    backend = torch.nn.attention.SDPBackend
    fused = not enable_gqa and is_fused(query, key, value, attn_mask, dropout_p, is_causal)
    return int(backend.OVERRIDEABLE.value if fused else backend.MATH.value)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute attention with Polyhal's op where it applies, through PyTorch's overrideable op, which has its gradient."""
    _check_dtypes(query, key, value, attn_mask)
    shape = (*query.shape[:-1], value.shape[-1])
    if enable_gqa and key.ndim >= 3 and key.shape[-3] != query.shape[-3]:
        folded = _grouped(query, key, value, attn_mask, is_causal) if query.ndim == 4 and not dropout_p else None
        if folded is not None:
            query = folded
        elif query.ndim == 4 and not dropout_p and _heads_fit(query, key, value):
            query, key, value, attn_mask = _shared(query, key, value, attn_mask)
        else:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if is_causal and attn_mask is None and query.shape[-2] != key.shape[-2]:
        # Polyhal's causal mask aligns the last query with the last key, PyTorch's the first query with the first key.
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        attn_mask, is_causal = seen.tril(), False
    if not is_fused(query, key, value, attn_mask, dropout_p, is_causal):
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            # The composition expects an additive mask.
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
        out: torch.Tensor = _aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )[0]
        return out
    fused: torch.Tensor = _aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, attn_mask, 0.0, is_causal, False, scale=scale
    )[0]
    return fused if fused.shape == shape else fused.reshape(shape)


KERNELS: dict[str, Callable[..., Any]] = {"_fused_sdp_choice.default": choose}
