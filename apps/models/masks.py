"""Attention masks of decoders: padding and other masks, combined with causal order and a cache."""

from __future__ import annotations

import math
from typing import NamedTuple

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import KVCache


class Visibility(NamedTuple):
    """The keys that the tokens of a call attend to, and the positions of the tokens."""

    mask: Tensor | None
    """Mask of all keys so far, causal order included; None if causal order is the only restriction."""
    positions: Tensor | None
    """Position of each token (B, T) in its own sequence, int32; None if it equals the index among the tokens."""


def visibility(name: str, ids: Tensor, attention_mask: Tensor | None, cache: KVCache | None) -> Visibility:
    """Combine a mask with causal order, for token ids (B, T) of a model called `name`.

    A mask (B, S) over the S keys so far, cached and new ones, is 0 or False at padding, on either side. Positions do not
    count padding: the first token of a row has position 0. A mask of more axes broadcasts to (B, heads, T, S) and changes
    no position: bool keeps where True, floats are added to the scores. Raises ShapeError for other shapes, and CaptureError
    for a mask in addition to a cache in a captured step.
    """
    count = ids.shape[1]
    if attention_mask is None:
        return Visibility(None, None if cache is None else cache.positions(count))
    before = 0
    if cache is not None:
        before = cache.known_length("attention_mask", fix="leave the mask out, or do not capture")
    keys = before + count
    mask = attention_mask
    if mask.shape[-1:] != (keys,) or not (mask.shape == (ids.shape[0], keys) or mask.ndim in (3, 4)):
        expected = f"({ids.shape[0]}, {keys}), or one that broadcasts to ({ids.shape[0]}, heads, {count}, {keys})"
        raise ShapeError(message(name, f"a mask of shape {mask.shape}", expected=expected))
    positions = None if cache is None else cache.positions(count)
    if mask.ndim == 2:
        mask = ph.not_equal(mask, 0)
        numbers = ph.cumsum(mask.to(dtypes.int32), -1) - 1
        positions = ph.clip(numbers, 0, None)[:, before:].to(dtypes.int32)
        mask = mask[:, None, None, :]
    else:
        mask = mask if mask.ndim == 4 else mask[:, None]
    return Visibility(_in_order(mask, before, count), positions)


def within(mask: Tensor | None, window: int, count: int, device: Device) -> Tensor | None:
    """Restrict a mask for `count` tokens without a cache to `window` keys per token, its own included.

    None stands for causal order.
    """
    if window >= count:
        return mask
    places = ph.arange(0, count, 1, dtypes.int32, device=device)
    distance = ph.reshape(places, (count, 1)) - places
    near = ph.less(distance, window)
    if mask is None:
        return ph.logical_and(near, ph.greater_equal(distance, 0))
    if mask.dtype.is_floating_point:
        result: Tensor = ph.where(near, mask, -math.inf)
        return result
    return ph.logical_and(mask, near)


def _in_order(mask: Tensor, before: int, count: int) -> Tensor:
    """Return the mask with causal order: no token attends to a later one."""
    places = ph.arange(0, before + count, 1, dtypes.int32, device=mask.device)
    seen = ph.less_equal(places, ph.reshape(places[before:], (count, 1)))
    if mask.dtype.is_floating_point:
        result: Tensor = ph.where(seen, mask, -math.inf)
        return result
    return ph.logical_and(mask, seen)
