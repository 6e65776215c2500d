"""Shapes and views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.tensor import Tensor


def integers(values: Value) -> tuple[int, ...]:
    """Return the elements of an array or a list as integers."""
    return tuple(int(v) for v in np.asarray(values).reshape(-1))


def flattened(x: Tensor, axis: int) -> Any:
    """Return a tensor as a matrix whose rows are the axes before `axis`."""
    axis = axis + x.ndim if axis < 0 else axis
    return ph.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Identity", raw=True)
def identity(x: Value) -> Any:
    return list(x) if isinstance(x, list) else x


@operator("Shape", raw=True)
def shape(x: Value, *, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


@operator("Size", raw=True)
def size(x: Value) -> Any:
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape", host=("shape",))
def reshape(x: Tensor, shape: Value, *, allowzero: int = 0) -> Any:
    lengths = [n if n or allowzero else x.shape[i] for i, n in enumerate(integers(shape))]
    if -1 in lengths:
        at = lengths.index(-1)
        rest = math.prod(lengths[:at] + lengths[at + 1 :])
        lengths[at] = x.numel() // rest if rest else 0
    return ph.reshape(x, tuple(lengths))


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Any:
    return flattened(x, axis)


@operator("Squeeze", host=("axes",))
def squeeze(x: Tensor, axes: Value = None) -> Any:
    chosen = range(x.ndim) if axes is None else [a % x.ndim for a in integers(axes)]
    if axes is not None and (wrong := [a for a in chosen if x.shape[a] != 1]):
        raise ValueError(f"axes {wrong} do not have the length 1")
    return ph.reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in chosen or n != 1))


@operator("Unsqueeze", host=("axes",))
def unsqueeze(x: Tensor, axes: Value) -> Any:
    chosen = integers(axes)
    ndim = x.ndim + len(chosen)
    if len({a % ndim for a in chosen}) < len(chosen):
        raise ValueError(f"axes {list(chosen)} repeat")
    rest = iter(x.shape)
    places = {a % ndim for a in chosen}
    return ph.reshape(x, tuple(1 if i in places else next(rest) for i in range(ndim)))


@operator("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Any:
    return ph.permute(x, tuple(perm) if perm is not None else tuple(reversed(range(x.ndim))))


@operator("Expand", host=("shape",))
def expand(x: Tensor, shape: Value) -> Any:
    return ph.broadcast_to(x, np.broadcast_shapes(x.shape, integers(shape)))


@operator("Tile", host=("repeats",))
def tile(x: Tensor, repeats: Value) -> Any:
    return ph.tile(x, integers(repeats))


@operator("Concat")
def concat(*xs: Tensor, axis: int = 1) -> Any:
    return ph.concat(list(xs), axis)


@operator("Split", host=("split",))
def split(x: Tensor, split: Value = None, *, axis: int = 0, num_outputs: int | None = None, node: NodeFacts) -> Any:
    length = x.shape[axis]
    if split is None:
        parts = num_outputs or len(node.outputs)
        step = -(-length // parts)
        sizes = tuple(max(0, min(step, length - i * step)) for i in range(parts))
    else:
        sizes = integers(split)
    return tuple(ph.split(x, list(sizes), axis))


@operator("Slice", host=("starts", "ends", "axes", "steps"))
def slice_(x: Tensor, starts: Value, ends: Value, axes: Value = None, steps: Value = None) -> Any:
    begin, end = integers(starts), integers(ends)
    chosen = integers(axes) if axes is not None else tuple(range(len(begin)))
    stride = integers(steps) if steps is not None else (1,) * len(begin)
    index: list[slice] = [slice(None)] * x.ndim
    reversed_axes = []
    for axis, a, b, s in zip(chosen, begin, end, stride, strict=True):
        positions = range(*slice(a, b, s).indices(x.shape[axis]))
        if s < 0:
            reversed_axes.append(axis)
            positions = positions[::-1]
        stop = positions.stop if len(positions) else positions.start
        index[axis] = slice(max(positions.start, 0), max(stop, 0), abs(s))
    taken = x[tuple(index)]
    return ph.flip(taken, reversed_axes) if reversed_axes else taken


@operator("Pad", host=("pads", "constant_value", "axes"))
def pad(
    x: Tensor,
    pads: Value,
    constant_value: Value = None,
    axes: Value = None,
    *,
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    number = value if constant_value is None else np.asarray(constant_value).reshape(-1)[0].item()
    chosen = [a % x.ndim for a in integers(axes)] if axes is not None else list(range(x.ndim))
    widths = integers(pads)
    both = {a: (widths[i], widths[i + len(chosen)]) for i, a in enumerate(chosen)}
    for axis, (before, after) in both.items():  # negative widths remove elements
        if before < 0 or after < 0:
            x = ph.narrow(x, axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-after, 0))
    if mode == "constant":
        full = [tuple(max(w, 0) for w in both.get(a, (0, 0))) for a in range(x.ndim)]
        return ph.pad(x, full, number) if any(map(any, full)) else x
    for axis, (before, after) in both.items():
        length = x.shape[axis]
        places = np.arange(-max(before, 0), length + max(after, 0))
        if mode == "edge":
            places = places.clip(0, length - 1)
        elif mode == "wrap":
            places = places % length
        else:
            period = max(2 * (length - 1), 1)
            places = np.abs((places + length - 1) % period - (length - 1)) if length > 1 else places * 0
        if max(before, 0) or max(after, 0):
            x = ph.index_select(x, axis, ph.tensor(places, device=x.device))
    return x


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b, depth = blocksize, c // blocksize**2
    parts = (n, b, b, depth, h, w) if mode == "DCR" else (n, depth, b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return ph.reshape(ph.permute(ph.reshape(x, parts), order), (n, depth, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    parts = ph.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return ph.reshape(ph.permute(parts, order), (n, c * b * b, h // b, w // b))


@operator("CenterCropPad", host=("shape",))
def center_crop_pad(x: Tensor, shape: Value, *, axes: list[int] | None = None) -> Any:
    for axis, length in zip(axes if axes is not None else range(x.ndim), integers(shape), strict=True):
        have = x.shape[axis]
        if length < have:
            x = ph.narrow(x, axis, (have - length) // 2, length)
        elif length > have:
            before = (length - have) // 2
            widths = [(0, 0)] * x.ndim
            widths[axis] = (before, length - have - before)
            x = ph.pad(x, widths, 0)
    return x


@operator("ReverseSequence", host=("sequence_lens",))
def reverse_sequence(x: Tensor, sequence_lens: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    time = np.arange(x.shape[time_axis])
    lens = np.asarray(sequence_lens)
    places = np.where(time < lens[:, None], lens[:, None] - 1 - time, time)  # batch, time
    places = places if batch_axis < time_axis else places.T
    lengths = [1] * x.ndim
    lengths[batch_axis], lengths[time_axis] = x.shape[batch_axis], x.shape[time_axis]
    index = ph.broadcast_to(ph.tensor(places.reshape(lengths), device=x.device), x.shape)
    return ph.take_along_axis(x, index, time_axis)
