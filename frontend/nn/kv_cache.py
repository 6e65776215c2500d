"""The key-value cache of decoders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polyhal import functions as ops
from polyhal.creation import empty, zeros
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.nn.functional.attention import capped_attention, restricted, scaled_dot_product_attention
from polyhal.nn.position import Rotation
from polyhal.tensor import Tensor

Memory = tuple[list[Tensor], ...]
"""Keys and values (batch, heads, capacity, width) by layer; scales (batch, heads, capacity, 1) of both if they are integers."""
_cached_attention, _quantized_attention = FUNCTIONS["cached_attention"], FUNCTIONS["quantized_cached_attention"]
_LARGEST = 127
"""Magnitude of the largest integer of a row."""
_STORE_ROWS, _ROTARY_STORE, _ADD = OPS["store_rows"], OPS["rotary_store"], OPS["add"]


class KVCache:
    """Keys and values of all positions that a decoder has processed, per layer, in preallocated memory.

    The number of positions of each sequence is stored on the device, in `lengths`, so that one captured step serves all
    lengths, and sequences of a batch may have different ones.

    With the dtype int8, each key and each value is stored as integers and a float32 scale, the 127th part of its largest
    magnitude, so that a feature is off by at most half a scale.
    """

    def __init__(
        self, layers: int, batch: int, heads: int, capacity: int, width: int, dtype: object, device: Device | str | None
    ) -> None:
        rows = [((batch, heads, capacity, width), dtypes.as_dtype(dtype))] * 2
        if rows[0][1] is dtypes.int8:
            rows += [((batch, heads, capacity, 1), dtypes.float32)] * 2
        self._memory: Memory = tuple([zeros(shape, kind, device) for _ in range(layers)] for shape, kind in rows)
        self.capacity = capacity
        self.lengths: Tensor = zeros((batch,), dtypes.int32, device)
        """Positions filled, per sequence (batch,), int32."""
        self.active: Tensor | None = None
        """1 for each sequence (batch,), int32, that `advance` advances; None for all."""
        self.length = 0
        """Positions filled in the longest sequence, known on the host."""
        self._positions: Tensor = ops.arange(0, capacity, 1, dtypes.int32, device=self.lengths.device)

    def reset(self) -> None:
        """Mark all positions as empty."""
        self.length = 0
        self.lengths.zero_()

    def sequence(self, index: int, capacity: int | None = None) -> KVCache:
        """Return an empty cache of one sequence of the batch, in its first `capacity` positions, with a length of its own."""
        one = KVCache.__new__(KVCache)
        one.capacity = self.capacity if capacity is None else capacity
        one._positions, one.length, one.active = self._positions, 0, None
        one.use(self.memory_of(index, one.capacity), zeros((1,), dtypes.int32, self.lengths.device))
        return one

    def memory_of(self, index: int, capacity: int) -> Memory:
        """Return the memory of one sequence of the batch, its first `capacity` positions."""
        return tuple([x[index : index + 1, :, :capacity] for x in layers] for layers in self._memory)

    @property
    def memory(self) -> Memory:
        """Keys and values (batch, heads, capacity, width) of each layer, and their scales if they are integers."""
        return self._memory

    def use(self, memory: Sequence[Sequence[Tensor]], lengths: Tensor) -> None:
        """Continue the sequences in other memory of the same shapes, such as arguments of a captured step."""
        self._memory, self.lengths = tuple(list(layers) for layers in memory), lengths

    def known_length(self, reader: str, fix: str) -> int:
        """Return the number of filled positions for a shape that depends on it.

        Raises CaptureError in a captured step, whose replays have other lengths; `reader` and `fix` are parts of its message.
        """
        problem = "a shape depends on the number of filled positions"
        dispatch.require_execution(reader, problem, fix=fix)
        return self.length

    def positions(self, count: int) -> Tensor:
        """Return the positions (batch, count), int32, of `count` new ones.

        Raises ShapeError if there is no room; a captured step does so at each replay.
        """
        dispatch.on_replay(partial(self._require_room, count))
        # Sequences of a batch that do not advance may be full.
        places: Tensor = ops.minimum(ops.reshape(self.lengths, (-1, 1)) + self._positions[:count], self.capacity - 1)
        return places

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        rotation: Rotation | None = None,
    ) -> Tensor:
        """Store the new keys and values (B, H, T, D) of a layer and attend to all stored ones, in causal order.

        `q` may have a multiple of their heads: neighbours share keys and values. A `mask` (B, 1 or heads, T, S) takes the
        place of causal order, and restricts attention to the first S positions. `scale` of the scores defaults to
        1/sqrt(D). With `window` a position attends to itself and the `window` - 1 before it; with `softcap` scores x become
        `softcap * tanh(x / softcap)`. `q` and `k` are rotated by `rotation` first.
        """
        stored = [layers[layer] for layers in self._memory]
        keys, values, *scales = stored
        integers = keys.dtype is dtypes.int8
        if rotation is not None and mask is None and not (integers or self._is_empty() or _has_gradient(q, k)):
            q = self._store_rotated(keys, values, q, k, v, rotation)
        else:
            q, k = (x if rotation is None else rotation.of(x) for x in (q, k))
            rows = _quantized(k, v) if integers else [k, v]
            for store, new in zip(stored, rows, strict=True):
                dispatch.apply_into(_STORE_ROWS, (store, new.to(store.dtype), self.lengths), (), (store,))
        if mask is None and not self._is_empty():
            # A captured step reads any number of positions, an eager one has to read few more than are filled.
            span = dispatch.static_bound(self._span(k.shape[2]), self.capacity)
            read = _quantized_attention if integers else _cached_attention
            keys, values, *scales = (x[:, :, :span] for x in stored)
            out: Tensor = read(q, keys, values, self.lengths, *scales, scale, window, softcap)
            return out
        if mask is not None:
            keys, values, *scales = (x[:, :, : mask.shape[-1]] for x in stored)
            k, v = (x.to(q.dtype) for x in (keys, values))
            if integers:
                k, v = (x * s.to(q.dtype) for x, s in zip((k, v), scales, strict=True))
        if window is not None and window < k.shape[2]:
            mask = self._within(window, mask, q.shape[2], k.shape[2])
        if softcap is not None:
            return capped_attention(q, k, v, softcap, mask, mask is None, scale)
        return scaled_dot_product_attention(q, k, v, mask, 0.0, mask is None, scale, enable_gqa=True)

    def _store_rotated(
        self, keys: Tensor, values: Tensor, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation
    ) -> Tensor:
        """Store rotated keys, and values, and return rotated queries, in one launch."""
        out = empty(q.shape, q.dtype, q.device)
        inputs = (keys, values, q, k, v, self.lengths, rotation.cos, rotation.sin)
        dispatch.apply_into(_ROTARY_STORE, inputs, (rotation.interleaved,), (keys, values, out))
        return out

    def advance(self, count: int) -> None:
        """Mark `count` positions as filled, after every layer has stored them; in a captured step, at each replay."""
        dispatch.on_replay(partial(self._require_room, count))
        dispatch.on_replay(partial(self._advance, count), partial(self._advance, -count))
        steps = count if self.active is None else self.active * count
        dispatch.apply_into(_ADD, (self.lengths, steps), (), (self.lengths,))

    def _advance(self, count: int) -> None:
        self.length += count

    def _require_room(self, count: int) -> None:
        if self.length + count > self.capacity:
            problem = f"{count} more positions after {self.length}"
            raise ShapeError(message("KVCache", problem, expected=f"at most {self.capacity} in all"))

    def _is_empty(self) -> bool:
        return dispatch.static_bound(self.length, 1) == 0

    def _span(self, count: int) -> int:
        """Return the length of the longest sequence with `count` more positions, rounded up to one of a few values."""
        return min(1 << (self.length + count - 1).bit_length(), self.capacity)

    def _within(self, window: int, mask: Tensor | None, count: int, keys: int) -> Tensor:
        """Return `mask`, or causal order, restricted to a window of keys that ends at each of the last `count` keys."""
        columns = self._positions[:keys]
        rows = ops.reshape(self._positions[keys - count : keys], (count, 1))
        near = ops.greater(columns, rows - window)
        return restricted(ops.less_equal(columns, rows) if mask is None else mask, near)


def _has_gradient(*xs: Tensor) -> bool:
    return dispatch.thread.grad_enabled and any(x.requires_grad for x in xs)


def _quantized(*rows: Tensor) -> list[Tensor]:
    """Return rows of features as integers, and then the scale of each row."""
    numbers = [x.to(dtypes.float32) for x in rows]
    scales = [ops.max(ops.abs(x), -1, True) / _LARGEST for x in numbers]
    # A row of zeros has no scale.
    return [*(ops.round(x / ops.where(s > 0, s, 1.0)) for x, s in zip(numbers, scales, strict=True)), *scales]
