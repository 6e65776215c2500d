"""Transformer encoder layers and position encodings."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn.activation import Dropout
from polyhal.nn.attention import MultiheadAttention
from polyhal.nn.container import ModuleList
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.norm import LayerNorm
from polyhal.tensor import Tensor

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class PositionalEncoding(Module):
    """Adds sines and cosines of the position to (N, L, E), then dropout.

    Source: Vaswani et al., arXiv:1706.03762, 3.5.
    """

    table: Tensor

    def __init__(
        self,
        embed_dim: int,
        max_length: int = 5000,
        dropout: float = 0.0,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.max_length = max_length
        angles = np.arange(max_length)[:, None] * np.exp(-math.log(10000.0) / embed_dim * np.arange(0, embed_dim, 2))
        waves = np.zeros((max_length, embed_dim))
        waves[:, 0::2] = np.sin(angles)
        waves[:, 1::2] = np.cos(angles[:, : embed_dim // 2])
        self.register_buffer("table", Tensor(waves, dtype=dtype or dtypes.float32, device=device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if length > self.max_length:
            raise ShapeError(
                message("PositionalEncoding", f"{length} positions", expected=f"at most {self.max_length}")
            )
        out: Tensor = self.dropout(x + self.table[:length])
        return out


class TransformerEncoderLayer(Module):
    """Self-attention and a two-layer network, each with a residual connection and layer norm.

    Inputs are (L, N, E), or (N, L, E) with `batch_first`. `norm_first` normalises before each part instead of after it
    (Xiong et al., arXiv:2002.04745).
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(f"activation {activation!r}; expected {' or '.join(_ACTIVATIONS)}, or a function")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first, device, dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`src_mask` (L, L) and `src_key_padding_mask` (N, L) mask positions that are True; `is_causal` masks later ones."""

        def attend(x: Tensor) -> Tensor:
            out, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)
            result: Tensor = self.dropout1(out)
            return result

        x = src
        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + attend(x))
        out: Tensor = self.norm2(x + self._feed_forward(x))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return result


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer in sequence, then `norm`, if any. All copies start from the same values."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """See TransformerEncoderLayer."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)
