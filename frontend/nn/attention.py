"""Multi-head attention, and the key-value cache of decoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal import functions as ops
from polyhal.creation import empty, zeros
from polyhal.hal import dispatch, dtypes, layout
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import Ref
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.functional.attention import attention_weights
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor

_attention = FUNCTIONS["attention"]
_STORE_ROWS = OPS["store_rows"]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, E) to (B, heads, T, E/heads). A view if the layout allows that."""
    batch, length, width = x.shape
    return ops.reshape(x, (batch, length, heads, width // heads)).transpose(1, 2)


def split_projection(x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3*E), projected at once, to queries, keys and values (B, heads, T, E/heads). Views.

    Heads are separated before queries, keys and values, so that the backward pass writes the gradient of each in one copy.
    """
    batch, length, width = x.shape
    joint = ops.reshape(x, (batch, length, 3, heads, width // (3 * heads)))
    q, k, v = (ops.squeeze(part, 2).transpose(1, 2) for part in joint.split(1, 2))
    return q, k, v


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) to (B, T, H*D)."""
    batch, heads, length, width = x.shape
    return ops.reshape(x.transpose(1, 2), (batch, length, heads * width))


class MultiheadAttention(Module):
    """Attention in `num_heads` subspaces of width embed_dim / num_heads. Source: Vaswani et al., arXiv:1706.03762.

    Inputs are (L, N, E), or (N, L, E) with `batch_first`, or (L, E) without a batch. As in PyTorch, True in a mask of
    this layer FORBIDS a position, and float masks are added to the scores.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.in_proj_weight = Parameter(empty((3 * embed_dim, embed_dim), dtype, device))
        self.in_proj_bias = Parameter(zeros((3 * embed_dim,), dtype, device)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        init.xavier_uniform_(self.in_proj_weight)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

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
        """The output, shaped like `query`, and the attention weights (N, L, S), per head (N, H, L, S), or None.

        `key_padding_mask` is (N, S); `attn_mask` is (L, S) or (N * num_heads, L, S). `is_causal` lets position i see
        keys 0 to i. Weights cost time and memory: pass `need_weights=False` if they are not used.
        """
        batched = query.ndim == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = self._swap(query, key, value)
        q, k, v = self._project(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, q.shape[0])
        p = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            weights = attention_weights(q, k, mask, is_causal)
            heads = ops.matmul(F.dropout(weights, p, self.training), v)
        else:
            heads = F.scaled_dot_product_attention(q, k, v, mask, p, is_causal)
        out = self.out_proj(merge_heads(heads))
        if weights is not None and average_attn_weights:
            weights = ops.mean(weights, 1)
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    @staticmethod
    def _swap(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(L, N, E) to (N, L, E). Identical inputs stay identical, so that one projection serves them."""
        swapped = {id(x): x.transpose(0, 1) for x in (query, key, value)}
        return swapped[id(query)], swapped[id(key)], swapped[id(value)]

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values (N, num_heads, length, width of a head)."""
        width = self.embed_dim
        if query is key and key is value:
            return split_projection(F.linear(query, self.in_proj_weight, self.in_proj_bias), self.num_heads)
        weights = [self.in_proj_weight[i * width : (i + 1) * width] for i in range(3)]
        biases = (
            [None] * 3
            if self.in_proj_bias is None
            else [self.in_proj_bias[i * width : (i + 1) * width] for i in range(3)]
        )
        projected = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return [split_heads(x, self.num_heads) for x in projected]

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, batch: int) -> Tensor | None:
        """Both masks as one additive mask, broadcastable to (N, H, L, S)."""
        total: Tensor | None = None
        if attn_mask is not None:
            total = self._additive(attn_mask)
            if total.ndim == 3:
                total = ops.reshape(total, (batch, self.num_heads, *total.shape[1:]))
        if padding is not None:
            part = self._additive(padding)
            part = ops.reshape(part, (part.shape[0], 1, 1, part.shape[1]))
            total = part if total is None else total + part
        return total

    @staticmethod
    def _additive(mask: Tensor) -> Tensor:
        return ops.where(mask, -math.inf, 0.0) if mask.dtype is dtypes.bool_ else mask

    def extra_repr(self) -> str:
        sizes = f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"
        return f"{sizes}, dropout={self.dropout}, batch_first={self.batch_first}"


class KVCache:
    """Keys and values of all positions that a decoder has processed, per layer, in preallocated memory.

    Attention covers the filled part rounded up to `granularity` positions, with a mask for the rest, so that generation needs
    few different shapes and kernels. In a captured step, where the length is a runtime scalar, it covers the first `reach`
    positions.
    """

    granularity = 128

    def __init__(
        self, layers: int, batch: int, heads: int, capacity: int, width: int, dtype: object, device: Device | str | None
    ) -> None:
        shape = (batch, heads, capacity, width)
        self._keys = [zeros(shape, dtype, device) for _ in range(layers)]
        self._values = [zeros(shape, dtype, device) for _ in range(layers)]
        self.capacity = capacity
        self.length = 0
        """Positions filled."""
        self.reach = capacity
        """How many positions captured steps attend to; a step that would fill more raises ShapeError."""
        self._positions: Tensor = ops.arange(0, capacity, 1, dtypes.int32, device=Device(device))

    def reset(self) -> None:
        """Mark all positions as empty."""
        self.length = 0

    def start(self, count: int) -> Any:
        """The first of `count` new positions; in a captured step a runtime scalar. Raises ShapeError if there is no room."""
        limit = dispatch.thread.executor.static_bound(self.capacity, self.reach)
        return dispatch.runtime_scalar(partial(self._checked_length, count, limit), "length")

    def _checked_length(self, count: int, limit: int) -> int:
        if self.length + count > limit:
            raise ShapeError(
                message("KVCache", f"{count} more positions after {self.length}", expected=f"at most {limit} in all")
            )
        return self.length

    def span(self, positions: int) -> int:
        """`positions` rounded up to one of a few values for `reach`, each four times the one before.

        A longer span makes every token read more; another span makes another recorded step, which costs as much as about a
        hundred tokens.
        """
        span = 2 * self.granularity
        while span < positions:
            span *= 4
        return min(span, self.capacity)

    def mask(self, count: int) -> Tensor | None:
        """Which cached positions each of `count` new ones attends to, (count, span); None if causal order is enough."""
        start = self.start(count)
        if dispatch.thread.executor.static_bound(self.length, self.reach) == 0:
            return None
        span = self._span(count)
        if count == 1:
            return ops.reshape(ops.less_equal(self._positions[:span], start), (1, span))
        rows = ops.reshape(self._positions[:count] + start, (count, 1))
        return ops.less_equal(self._positions[:span], rows)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Store the new keys and values (B, H, T, D) of a layer and attend to all stored ones; `mask` is a result of `mask`."""
        count = k.shape[2]
        start = self.start(count)
        self._write(self._keys[layer], k, start)
        self._write(self._values[layer], v, start)
        if mask is not None:
            span = self._span(count)
            k, v = self._keys[layer][:, :, :span], self._values[layer][:, :, :span]
        out: Tensor = _attention(q, k, v, mask, mask is None)[0]
        return out

    def advance(self, count: int) -> None:
        """Mark `count` positions as filled, after every layer has stored them; in a captured step, at each replay."""
        dispatch.on_replay(partial(self._advance, count))

    def _advance(self, count: int) -> None:
        self.length += count

    def _span(self, count: int) -> int:
        rounded = -(-(self.length + count) // self.granularity) * self.granularity
        return dispatch.thread.executor.static_bound(min(rounded, self.capacity), self.reach)

    def _write(self, store: Tensor, new: Tensor, start: Any) -> None:
        """Copy to the positions from `start` on. Without views: each position would leave a plan in the cache."""
        if type(start) is not int:  # a runtime scalar
            dispatch.apply_into(_STORE_ROWS, (store, new.cast(dtype=store.dtype), start), (), (store,))
            return
        spec = store.ref.spec
        view = layout.slice_view(spec, (0, 0, start, 0), new.shape, (1, 1, 1, 1))
        target = Ref(store.ref.handle, layout.place(spec, view), store.ref.offset + view.offset)
        store.device.backend.copy(new.ref, target)
        store.buffer.version += 1


__all__ = ["KVCache", "MultiheadAttention", "merge_heads", "split_heads", "split_projection"]
