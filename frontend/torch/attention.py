"""Attention: PyTorch asks a table in C++ which kernel a device has, so the whole op is taken over above autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def is_fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, dropout_p: float, is_causal: bool
) -> bool:
    """Whether Polyhal's op computes this attention with all gradients: no dropout, none for the mask, heads one to one."""
    square = query.ndim >= 2 and query.shape[-2] == key.shape[-2]
    return (
        not dropout_p
        and (square or not is_causal)
        and not (mask is not None and (mask.requires_grad or is_causal))
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    )


def choose(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> int:  # fmt: skip
    """The kernel that PyTorch shall take: Polyhal's, or its own composition of products and a softmax."""
    backend = torch.nn.attention.SDPBackend
    fused = not enable_gqa and is_fused(query, key, value, attn_mask, dropout_p, is_causal)
    return int(backend.OVERRIDEABLE.value if fused else backend.MATH.value)


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Polyhal's op where it fits; its gradient is that of PyTorch's op for devices with kernels of their own."""
    if enable_gqa and key.ndim >= 3 and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if not is_fused(query, key, value, attn_mask, dropout_p, is_causal):
        out: torch.Tensor = _aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )[0]
        return out
    fused: torch.Tensor = _aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, attn_mask, 0.0, is_causal, False, scale=scale
    )[0]
    return fused


KERNELS: dict[str, Callable[..., Any]] = {"_fused_sdp_choice.default": choose}
