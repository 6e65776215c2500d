"""The key-value cache of decoders."""

from __future__ import annotations

from functools import partial
from typing import Any

from polyhal import functions as ops
from polyhal.creation import zeros
from polyhal.hal import dtypes, layout
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import Ref
from polyhal.hal.ops import FUNCTIONS, OPS
from polyhal.nn.functional.attention import capped_attention, group_heads, group_mask, restricted, share_heads
from polyhal.tensor import Tensor

_attention = FUNCTIONS["attention"]
_STORE_ROWS = OPS["store_rows"]


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
        self._positions: Tensor = ops.arange(0, capacity, 1, dtypes.int32, device=dispatch.target_device(device))

    def reset(self) -> None:
        """Mark all positions as empty."""
        self.length = 0

    def known_length(self, reader: str, fix: str) -> int:
        """Return the number of filled positions for a shape that depends on it.

        Raises CaptureError in a captured step, whose replays have other lengths; `reader` and `fix` are parts of its message.
        """
        problem = "a shape depends on the number of filled positions"
        dispatch.require_execution(reader, problem, fix=fix)
        return self.length

    def start(self, count: int) -> Any:
        """The first of `count` new positions; in a captured step a runtime scalar. Raises ShapeError if there is no room."""
        limit = dispatch.static_bound(self.capacity, self.reach)
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
        if dispatch.static_bound(self.length, self.reach) == 0:
            return None
        span = self._span(count)
        if count == 1:
            return ops.reshape(ops.less_equal(self._positions[:span], start), (1, span))
        rows = ops.reshape(self._positions[:count] + start, (count, 1))
        return ops.less_equal(self._positions[:span], rows)

    def covered(self, count: int) -> int:
        """Return the number of keys that `attend` reads for `count` new positions, if it has a mask."""
        return self._span(count)

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
    ) -> Tensor:
        """Store the new keys and values (B, H, T, D) of a layer and attend to all stored ones; `mask` is a result of `mask`.

        `q` may have a multiple of their heads: neighbours share keys and values. Any other mask must be `covered` keys wide.
        `scale` of the scores defaults to 1/sqrt(D). With `window` a position attends to itself and the `window` - 1 before
        it; with `softcap` scores x become `softcap * tanh(x / softcap)`.
        """
        count = k.shape[2]
        start = self.start(count)
        self._write(self._keys[layer], k, start)
        self._write(self._values[layer], v, start)
        if mask is not None:
            span = self._span(count)
            k, v = self._keys[layer][:, :, :span], self._values[layer][:, :, :span]
        if window is not None and window < dispatch.static_bound(self.length + count, self.reach):
            mask = self._within(window, mask, start, count, k.shape[2])
        if softcap is not None:
            return capped_attention(q, k, v, softcap, mask, mask is None, scale)
        heads, kept = q.shape[1], k.shape[1]
        if heads == kept:
            out: Tensor = _attention(q, k, v, mask, mask is None, scale)[0]
            return out
        if count == 1 and (mask is None or mask.ndim < 4 or mask.shape[1] == 1):
            # Query heads that share keys become rows.
            rows = ops.reshape(q, (*k.shape[:2], heads // kept, q.shape[3]))
            return ops.reshape(_attention(rows, k, v, mask, False, scale)[0], q.shape)
        mask = None if mask is None else group_mask(mask, heads, kept)
        k, v = share_heads(k, heads), share_heads(v, heads)
        grouped: Tensor = ops.reshape(_attention(group_heads(q, kept), k, v, mask, mask is None, scale)[0], q.shape)
        return grouped

    def _within(self, window: int, mask: Tensor | None, start: Any, count: int, keys: int) -> Tensor:
        """Return `mask`, or causal order, restricted to the last `window` positions before each new one."""
        columns, rows = self._positions[:keys], ops.reshape(self._positions[:count] + start, (count, 1))
        near = ops.greater(columns, rows - window)
        return restricted(ops.less_equal(columns, rows) if mask is None else mask, near)

    def advance(self, count: int) -> None:
        """Mark `count` positions as filled, after every layer has stored them; in a captured step, at each replay."""
        dispatch.on_replay(partial(self._advance, count), partial(self._advance, -count))

    def _advance(self, count: int) -> None:
        self.length += count

    def _span(self, count: int) -> int:
        rounded = -(-(self.length + count) // self.granularity) * self.granularity
        return dispatch.static_bound(min(rounded, self.capacity), self.reach)

    def _write(self, store: Tensor, new: Tensor, start: int) -> None:
        """Copy to the positions beginning at `start`, without views: each position would add a plan to the cache."""
        if type(start) is not int:  # a runtime scalar
            dispatch.apply_into(_STORE_ROWS, (store, new.cast(dtype=store.dtype), start), (), (store,))
            return
        spec = store.ref.spec
        view = layout.slice_view(spec, (0, 0, start, 0), new.shape, (1, 1, 1, 1))
        target = Ref(store.ref.handle, layout.place(spec, view), store.ref.offset + view.offset)
        store.device.backend.copy(new.ref, target)
        store.buffer.version += 1
