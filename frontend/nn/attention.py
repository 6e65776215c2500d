"""Multi-head attention."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.creation import empty, zeros
from polyhal.hal.device import Device
from polyhal.nn import init
from polyhal.nn.functional.multihead import attend, merge_heads, project, swapped, unsqueezed
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


class MultiheadAttention(Module):
    """Attention in `num_heads` subspaces of width embed_dim / num_heads. Source: Vaswani et al., arXiv:1706.03762.

    Inputs are (L, N, E), or (N, L, E) with `batch_first`, or (L, E) without a batch. As in PyTorch, True in a mask of
    this layer FORBIDS a position, and float masks are added to the scores. `add_bias_kv` learns a key and a value that
    every query may attend to, `add_zero_attn` adds zeros; keys have width `kdim` and values `vdim`, embed_dim unless
    given. Raises ValueError if `num_heads` does not divide `embed_dim`.

    >>> x = polyhal.ones(2, 5, 8)
    >>> output, weights = polyhal.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> output.shape, weights.shape
    ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        joint = self.kdim == embed_dim and self.vdim == embed_dim

        def weight(*shape: int) -> Parameter:
            return Parameter(empty(shape, dtype, device))

        self.q_proj_weight = None if joint else weight(embed_dim, embed_dim)
        self.k_proj_weight = None if joint else weight(embed_dim, self.kdim)
        self.v_proj_weight = None if joint else weight(embed_dim, self.vdim)
        self.in_proj_weight = weight(3 * embed_dim, embed_dim) if joint else None
        self.in_proj_bias = Parameter(zeros((3 * embed_dim,), dtype, device)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        self.bias_k = weight(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = weight(1, 1, embed_dim) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw new initial values."""
        for projection in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if projection is not None:
                init.xavier_uniform_(projection)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, shaped like `query`, and the attention weights (N, L, S), per head (N, H, L, S), or None.

        `key_padding_mask` is (N, S); `attn_mask` is (L, S) or (N * num_heads, L, S). `is_causal` without a mask lets
        position i see keys 0 to i; with a mask it is a hint that the mask is that. Weights cost time and memory: pass
        `need_weights=False` if they are not used.
        """
        batched = query.ndim == 3
        if not batched:
            query, key, value = unsqueezed(query, key, value)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = swapped(query, key, value)
        separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        projections = separate if self.in_proj_weight is None else self.in_proj_weight
        q, k, v = project(query, key, value, projections, self.in_proj_bias, self.num_heads)
        heads, weights = attend(
            q,
            k,
            v,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout if self.training else 0.0,
            key_padding_mask,
            need_weights,
            attn_mask,
            is_causal,
        )
        out = self.out_proj(merge_heads(heads))
        if weights is not None and average_attn_weights:
            weights = ops.mean(weights, 1)
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights
