"""Transformer encoders and decoders. Source: Vaswani et al., arXiv:1706.03762.

As in PyTorch, True in a mask forbids a position and float masks are added; `is_causal` without a mask masks later
positions, and with one is a hint that it does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.attention import MultiheadAttention
from polyhal.nn.container import ModuleList
from polyhal.nn.dropout import Dropout
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.norm import LayerNorm
from polyhal.tensor import Tensor

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation {activation!r}; expected {' or '.join(_ACTIVATIONS)}, or a function")
    return _ACTIVATIONS[activation]


class _TransformerLayer(Module):
    """Base of layers with attention and a two-layer network, each with a residual connection and a layer norm."""

    attentions: ClassVar[tuple[str, ...]]
    """The names of the attention modules. Modules are in PyTorch's order, which numbers the parameters of optimizers."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        chosen = _activation(activation)
        for name in self.attentions:
            self.add_module(name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place))
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        numbers = range(1, len(self.attentions) + 2)
        for number in numbers:
            self.add_module(f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for number in numbers:
            self.add_module(f"dropout{number}", Dropout(dropout))
        self.activation = chosen

    def _residual(self, number: int, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` plus dropout of a branch, with the norm before the branch or after the sum."""
        norm, dropout = self.get_submodule(f"norm{number}"), self.get_submodule(f"dropout{number}")
        out: Tensor = x + dropout(branch(norm(x))) if self.norm_first else norm(x + dropout(branch(x)))
        return out

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a two-layer network, each with a residual connection and layer norm.

    Inputs are (L, N, E), or (N, L, E) with `batch_first`. `norm_first` normalises before each part instead of after it
    (Xiong et al., arXiv:2002.04745).
    """

    attentions = ("self_attn",)
    self_attn: MultiheadAttention

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`src_mask` (L, L) and `src_key_padding_mask` (N, L) mask positions that are True; `is_causal` masks later ones."""

        def attend(x: Tensor) -> Tensor:
            out: Tensor = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]
            return out

        return self._residual(2, self._residual(1, src, attend), self._feed_forward)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to an encoder's results, and a two-layer network; see TransformerEncoderLayer."""

    attentions = ("self_attn", "multihead_attn")
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Apply the layer: masks `tgt_*` are for the self-attention, masks `memory_*` for the attention to `memory`."""

        def attend(x: Tensor) -> Tensor:
            out: Tensor = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]
            return out

        def attend_to_memory(x: Tensor) -> Tensor:
            masks = (memory_key_padding_mask, False, memory_mask)
            out: Tensor = self.multihead_attn(x, memory, memory, *masks, is_causal=memory_is_causal)[0]
            return out

        x = self._residual(2, self._residual(1, tgt, attend), attend_to_memory)
        return self._residual(3, x, self._feed_forward)


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer in sequence, then `norm`, if any. All copies start from the same values.

    `enable_nested_tensor` and `mask_check` are PyTorch's and have no effect.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """See TransformerEncoderLayer."""
        x = src
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer in sequence, then `norm`, if any. All copies start from the same values."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """See TransformerDecoderLayer."""
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                bool(tgt_is_causal),
                memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder, each of layers and a last layer norm. Weights start by Glorot and Bengio's rule."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        settings = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = (
            TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers, norm())
            if custom_encoder is None
            else custom_encoder
        )
        self.decoder = (
            TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers, norm())
            if custom_decoder is None
            else custom_decoder
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(S, N, E) and (T, N, E) to (T, N, E), with N first if `batch_first`, or without N. Raises ShapeError."""
        if src.ndim != tgt.ndim or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            problem = f"src {src.shape} and tgt {tgt.shape}"
            raise ShapeError(message("Transformer", problem, expected=f"as many axes, and {self.d_model} features"))
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        out: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Device | str | None = None, dtype: object = None) -> Tensor:
        """Return a mask (sz, sz) to add, with -inf for later positions."""
        later = ops.full((sz, sz), float("-inf"), dtype or dtypes.float32, device=dispatch.target_device(device))
        kept = ops.tril(ops.full((sz, sz), True, dtypes.bool_, device=dispatch.target_device(device)))
        return ops.where(kept, 0.0, later)
