"""Boolean masks as bits: kernels for matrix units read a word for 32 pairs, instead of a byte for each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.attention import mask_kind
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, stride_args
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_BITS = 32
_MIN_QUERIES = 32
"""Minimum number of queries for which a launch that packs the mask is faster."""
_BLOCK = 128
"""Columns of a row are rounded up to it: no kernel has longer blocks."""


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call whose mask is packed, the launch that packs it, and the bytes of its workspace; unchanged without a bool mask."""

    call: AttentionCall
    launches: tuple[Launch, ...] = ()
    workspace: tuple[int, ...] = ()


def packed(
    runtime: Runtime, call: AttentionCall, columns_of_blocks: int, at: int, rows_are_keys: bool = False
) -> PackedCall:
    """Pack the mask to workspace `at`, by rows of keys or of queries. Axes along which it is broadcast remain broadcast."""
    whole_words = columns_of_blocks % _BITS == 0
    if mask_kind(call.mask) != 1 or call.mask is None or call.shape.t < _MIN_QUERIES or not whole_words:
        return PackedCall(call)
    s = call.shape
    steps = s.batch_strides[-1]
    kept = tuple(n if step else 1 for n, step in zip(s.batch, steps, strict=True))
    rows, columns = (s.s, s.t) if rows_are_keys else (s.t, s.s)
    words = round_up(columns, _BLOCK) // _BITS
    count, group = kept[0] * kept[1] * kept[2], runtime.features.group_size
    launch = runtime.launch(
        "attention/pack_mask",
        {"ROWS_ARE_KEYS": rows_are_keys, "CAUSAL": call.causal},
        {
            "mask": Tensor(len(call.names)),
            "bits": Workspace(at),
            "t": s.t,
            "s": s.s,
            "words": words,
            "batch1": kept[1],
            "batch2": kept[2],
            **stride_args("mask", (*steps, *call.mask_strides())),
        },
        (rows, words, count) if rows_are_keys else (round_up(words, 4), rows, count),
        (group, 1, 1) if rows_are_keys else (4, ceil_div(group, 4), 1),
    )
    size = rows * words
    packed_steps = (kept[1] * kept[2] * size, kept[2] * size, size)
    strides = tuple(new if step else 0 for new, step in zip(packed_steps, steps, strict=True))
    mask = Spec(dtypes.uint32, (rows, words), (words, 1), True)
    shape = replace(s, batch_strides=(*s.batch_strides[:-1], (strides[0], strides[1], strides[2])))
    changed = replace(call, mask=mask, mask_memory=Workspace(at), shape=shape)
    return PackedCall(changed, (launch,), (4 * count * size,))
