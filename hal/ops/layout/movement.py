"""Ops that only rearrange elements: views, which cost nothing, and assemblies of fills and strided copies."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec, View, normalize_axes, normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.opdef import (
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Piece,
    Sample,
    Specs,
    Tolerance,
    declare,
)
from polyhal.hal.ops.traits import Trait

_EXACT = Tolerance(0.0)
_EMPTY = inspect.Parameter.empty


def _first(specs: Specs) -> Spec:
    spec = specs[0]
    assert isinstance(spec, Spec), "movement ops take tensors"
    return spec


# --- views ----------------------------------------------------------------------------------------------------------


def _reshape(x: Any, *, shape: Any) -> Any:
    """The same elements in row-major order in another shape; one length may be -1. A view where possible."""
    return np.reshape(x, shape)


def _infer_reshape(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    shape = params["shape"]
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if shape.count(-1) > 1:
        raise ValueError(f"shape {shape} leaves more than one length open")
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        if known == 0 or spec.size % known:
            raise ValueError(f"{spec.size} elements do not fill shape {shape}")
        shape = tuple(spec.size // known if n == -1 else n for n in shape)
    if math.prod(shape) != spec.size or any(n < 0 for n in shape):
        raise ValueError(f"{spec.size} elements of shape {spec.shape} do not fill shape {shape}")
    params["shape"] = shape
    return [(spec.dtype, shape)]


reshape: OpFunction = declare(
    _reshape,
    name="reshape",
    family="movement",
    infer=_infer_reshape,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    view=lambda spec, params: layout.reshape(spec, params["shape"]),
    decompose=lambda x, *, shape: reshape(contiguous(x), shape),
    gradient=lambda g, x_spec: reshape(g, x_spec.shape),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (4, 6)),), {"shape": (2, -1, 3)}),
        Sample((rng.uniform(-1, 1, (2, 3)),), {"shape": (6,)}),
        Sample((rng.uniform(-1, 1, (1,)),), {"shape": ()}),
        Sample((rng.uniform(-1, 1, (0, 3)),), {"shape": (3, 0, 2)}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"shape": (4,)}, ValueError, "6 elements")],
    traits=Trait.LAYOUT_TRANSPARENT,
)


def _permute(x: Any, *, axes: Any) -> Any:
    """The tensor with axis `axes[i]` at position i. A view."""
    return np.transpose(x, axes)


def _infer_permute(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    axes = tuple(normalize_axis(a, spec.ndim) for a in params["axes"])
    if sorted(axes) != list(range(spec.ndim)):
        raise ValueError(f"axes {params['axes']} are no permutation of the {spec.ndim} axes")
    params["axes"] = axes
    return [(spec.dtype, tuple(spec.shape[a] for a in axes))]


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda i: axes[i]))


permute: OpFunction = declare(
    _permute,
    name="permute",
    family="movement",
    infer=_infer_permute,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    view=lambda spec, params: layout.permute(spec, params["axes"]),
    gradient=lambda g, *, axes: permute(g, _inverse([a % g.ndim for a in axes])),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3, 4)),), {"axes": (2, 0, 1)}),
        Sample((rng.uniform(-1, 1, (5, 3)),), {"axes": (-1, 0)}),
        Sample((rng.uniform(-1, 1, ()),), {"axes": ()}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"axes": (0, 0)}, ValueError, "no permutation")],
    traits=Trait.LAYOUT_TRANSPARENT,
)


def _broadcast_to(x: Any, *, shape: Any) -> Any:
    """The tensor stretched to `shape` under NumPy's rules. A view."""
    return np.broadcast_to(x, shape)


def _infer_broadcast(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    shape = tuple(params["shape"])
    layout.broadcast_strides(spec.shape, spec.strides, shape)
    params["shape"] = shape
    return [(spec.dtype, shape)]


def _broadcast_gradient(g: Any, x_spec: Spec) -> Any:
    return sum_to(g, x_spec.shape)


broadcast_to = declare(
    _broadcast_to,
    name="broadcast_to",
    family="movement",
    infer=_infer_broadcast,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    view=lambda spec, params: View(
        params["shape"], layout.broadcast_strides(spec.shape, spec.strides, params["shape"])
    ),
    gradient=_broadcast_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 1)),), {"shape": (2, 3, 4)}),
        Sample((rng.uniform(-1, 1, ()),), {"shape": (5,)}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"shape": (2, 4)}, ValueError, "broadcast")],
)


def _slice(x: Any, *, starts: Any, lengths: Any, steps: Any) -> Any:
    """`lengths[i]` elements from `starts[i]` on, `steps[i]` apart, on every axis; steps may be negative. A view."""
    index = [[a + k * s for k in range(n)] for a, n, s in zip(starts, lengths, steps, strict=True)]
    return np.asarray(x)[np.ix_(*[np.array(i, int) for i in index])] if index else np.asarray(x)


def _infer_slice(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    starts, lengths, steps = tuple(params["starts"]), tuple(params["lengths"]), tuple(params["steps"])
    for axis, (n, start, length, step) in enumerate(zip(spec.shape, starts, lengths, steps, strict=True)):
        if length and not (0 <= start < n and 0 <= start + (length - 1) * step < n):
            raise ValueError(f"axis {axis} of length {n} has no {length} elements from {start} on with step {step}")
    params.update(starts=starts, lengths=lengths, steps=steps)
    return [(spec.dtype, lengths)]


slice_ = declare(
    _slice,
    name="slice",
    family="movement",
    public=False,
    infer=_infer_slice,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    view=lambda spec, params: layout.slice_view(spec, params["starts"], params["lengths"], params["steps"]),
    gradient=lambda g, x_spec, *, starts, lengths, steps: unslice(g, x_spec.shape, starts, steps),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (5, 7)),), {"starts": (1, 6), "lengths": (3, 4), "steps": (1, -2)}),
        Sample((rng.uniform(-1, 1, (5,)),), {"starts": (0,), "lengths": (0,), "steps": (1,)}),
    ],
    errors=[ErrorSample((np.zeros(3),), {"starts": (2,), "lengths": (2,), "steps": (1,)}, ValueError, "no 2 elements")],
    traits=Trait.LAYOUT_TRANSPARENT,
)


def _windows(x: Any, *, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Sliding windows over the last len(kernel) axes: (..., H, W) to (..., OH, OW, KH, KW). A view."""
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    n = len(kernel)
    views = np.lib.stride_tricks.sliding_window_view(np.asarray(x), spans, axis=tuple(range(-n, 0)))
    picks = [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    out: np.ndarray = views[(Ellipsis, *picks)]  # type: ignore[arg-type]
    return out


def _infer_windows(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    kernel, stride, dilation = (tuple(params[k]) for k in ("kernel", "stride", "dilation"))
    n = len(kernel)
    if spec.ndim < n:
        raise ValueError(f"a tensor of shape {spec.shape} has no {n} axes to slide over")
    out = []
    for size, k, s, d in zip(spec.shape[spec.ndim - n :], kernel, stride, dilation, strict=True):
        span = (k - 1) * d + 1
        if size < span:
            raise ValueError(f"a window of {span} does not fit in an axis of length {size}")
        out.append((size - span) // s + 1)
    params.update(kernel=kernel, stride=stride, dilation=dilation)
    return [(spec.dtype, (*spec.shape[: spec.ndim - n], *out, *kernel))]


def _windows_view(spec: Spec, params: Params) -> View:
    (_, shape), n = _infer_windows((spec,), dict(params))[0], len(params["kernel"])
    tail = spec.strides[spec.ndim - n :]
    steps = tuple(t * s for t, s in zip(tail, params["stride"], strict=True))
    inner = tuple(t * d for t, d in zip(tail, params["dilation"], strict=True))
    return View(shape, (*spec.strides[: spec.ndim - n], *steps, *inner))


def _windows_gradient(g: Any, x_spec: Spec, *, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Add every kernel position's slice of the gradient back where it came from."""
    n = len(kernel)
    lead = g.ndim - 2 * n
    shape = x_spec.shape
    total = None
    for position in np.ndindex(*kernel):
        part = g[(..., *position)]
        starts = (0,) * lead + tuple(p * d for p, d in zip(position, dilation, strict=True))
        placed = unslice(part, shape, starts, (1,) * lead + tuple(stride))
        total = placed if total is None else total + placed
    return total


windows = declare(
    _windows,
    name="windows",
    family="movement",
    public=False,
    infer=_infer_windows,
    view=_windows_view,
    gradient=_windows_gradient,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 6, 7)),), {"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2)}),
        Sample((rng.uniform(-1, 1, (5,)),), {"kernel": (2,), "stride": (1,), "dilation": (1,)}),
    ],
    errors=[
        ErrorSample((np.zeros((3,)),), {"kernel": (4,), "stride": (1,), "dilation": (1,)}, ValueError, "does not fit")
    ],
)

# --- copies ---------------------------------------------------------------------------------------------------------


def _contiguous(x: Any) -> Any:
    """The tensor in row-major order, itself if it already is."""
    return np.ascontiguousarray(x)


def _infer_same(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    return [(spec.dtype, spec.shape)]


def _whole(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[Piece]:
    return [Piece(View(outputs[0].shape, outputs[0].strides), 0)]


contiguous: OpFunction = declare(
    _contiguous,
    name="contiguous",
    family="movement",
    infer=_infer_same,
    assemble=_whole,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    view=lambda spec, params: View(spec.shape, spec.strides) if spec.is_contiguous else None,
    gradient=lambda g: g,
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),))],
    traits=Trait.LAYOUT_TRANSPARENT | Trait.JOINS_OPERANDS,
)


def _copy(x: Any) -> Any:
    """A new tensor with the same elements, in row-major order."""
    return np.array(x)


copy = declare(
    _copy,
    name="copy",
    family="movement",
    infer=_infer_same,
    assemble=_whole,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    gradient=lambda g: g,
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),)), Sample((rng.uniform(-1, 1, (0, 4)),))],
)


def _unslice(x: Any, *, shape: Any, starts: Any, steps: Any) -> Any:
    """Zeros of `shape` with `x` placed from `starts` on, `steps` apart: the inverse of slice."""
    x = np.asarray(x)
    out = np.zeros(shape, x.dtype)
    index = [np.array([a + k * s for k in range(n)], int) for a, n, s in zip(starts, x.shape, steps, strict=True)]
    if index:
        out[np.ix_(*index)] = x
    else:
        out[...] = x
    return out


def _infer_unslice(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    shape, starts, steps = (tuple(params[k]) for k in ("shape", "starts", "steps"))
    _infer_slice((layout.contiguous(spec.dtype, shape),), {"starts": starts, "lengths": spec.shape, "steps": steps})
    params.update(shape=shape, starts=starts, steps=steps)
    return [(spec.dtype, shape)]


def _assemble_unslice(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[Piece]:
    out = outputs[0]
    target = layout.slice_view(out, params["starts"], _first(specs).shape, params["steps"])
    pieces = [Piece(target, 0)]
    if target.shape != out.shape:
        pieces.insert(0, Piece(View(out.shape, out.strides), value=0))
    return pieces


unslice: OpFunction = declare(
    _unslice,
    name="unslice",
    family="movement",
    public=False,
    infer=_infer_unslice,
    assemble=_assemble_unslice,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    gradient=lambda g, x_spec, *, shape, starts, steps: slice_(g, starts, x_spec.shape, steps),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),), {"shape": (5, 7), "starts": (1, 6), "steps": (1, -2)})],
)


def _pad(x: Any, *, widths: Any, value: Any = 0) -> Any:
    """`x` with `widths[i] = (before, after)` elements of `value` added on axis i."""
    return np.pad(np.asarray(x), widths, constant_values=value)


def _infer_pad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    widths = tuple(tuple(w) for w in params["widths"])
    if len(widths) != spec.ndim or any(len(w) != 2 or min(w) < 0 for w in widths):
        raise ValueError(f"widths {widths} do not give (before, after) >= 0 for each of the {spec.ndim} axes")
    params["widths"] = widths
    return [(spec.dtype, tuple(n + a + b for n, (a, b) in zip(spec.shape, widths, strict=True)))]


def _assemble_pad(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[Piece]:
    spec, out = _first(specs), outputs[0]
    target = layout.slice_view(out, tuple(w[0] for w in params["widths"]), spec.shape, (1,) * spec.ndim)
    return [Piece(View(out.shape, out.strides), value=params["value"]), Piece(target, 0)]


pad = declare(
    _pad,
    name="pad",
    family="movement",
    infer=_infer_pad,
    assemble=_assemble_pad,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    gradient=lambda g, x_spec, *, widths, value: slice_(
        g, tuple(w[0] for w in widths), x_spec.shape, (1,) * len(widths)
    ),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 4)),), {"widths": ((1, 0), (2, 3)), "value": 1}),
        Sample((rng.uniform(-1, 1, (0, 2)),), {"widths": ((1, 1), (0, 0))}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"widths": ((1, 1),)}, ValueError, "widths")],
)


def _concat(*xs: Any, axis: Any = 0) -> Any:
    """Tensors joined along an existing axis."""
    return np.concatenate([np.asarray(x) for x in xs], axis=axis)


def _infer_concat(specs: Specs, params: dict[str, Any]) -> list[Output]:
    if not specs:
        raise ValueError("needs at least one tensor")
    first = _first(specs)
    if first.ndim == 0:
        raise ValueError("zero-dimensional tensors cannot be joined; use stack")
    axis = normalize_axis(params["axis"], first.ndim)
    dtype, total = first.dtype, 0
    for spec in specs:
        assert isinstance(spec, Spec)
        rest = (*spec.shape[:axis], *spec.shape[axis + 1 :])
        if spec.ndim != first.ndim or rest != (*first.shape[:axis], *first.shape[axis + 1 :]):
            raise ValueError(f"shapes {first.shape} and {spec.shape} differ outside axis {axis}")
        dtype = dtypes.promote(dtype, spec.dtype)
        total += spec.shape[axis]
    params["axis"] = axis
    return [(dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def _assemble_concat(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[Piece]:
    out, axis, start, pieces = outputs[0], params["axis"], 0, []
    for i, spec in enumerate(specs):
        assert isinstance(spec, Spec)
        begins = tuple(start if a == axis else 0 for a in range(out.ndim))
        pieces.append(Piece(layout.slice_view(out, begins, spec.shape, (1,) * out.ndim), i))
        start += spec.shape[axis]
    return pieces


def _concat_gradient(g: Any, xs_specs: tuple[Spec, ...], *, axis: int) -> Any:
    start, parts, axis = 0, [], axis % g.ndim
    for spec in xs_specs:
        begins = tuple(start if a == axis else 0 for a in range(g.ndim))
        parts.append(slice_(g, begins, spec.shape, (1,) * g.ndim))
        start += spec.shape[axis]
    return tuple(parts)


concat = declare(
    _concat,
    name="concat",
    family="movement",
    infer=_infer_concat,
    assemble=_assemble_concat,
    gradient=_concat_gradient,
    dtypes=dtypes.ALL,
    tolerance=_EXACT,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3)), rng.uniform(-1, 1, (2, 1)), rng.uniform(-1, 1, (2, 0))), {"axis": -1}),
        Sample((rng.uniform(-1, 1, (2, 3)),), {"axis": 0}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((3, 4))), {"axis": 0}, ValueError, "differ outside axis 0")],
    traits=Trait.JOINS_OPERANDS,
)

# --- composites -----------------------------------------------------------------------------------------------------


@composite()
def transpose(x: Any, axis0: int = -2, axis1: int = -1) -> Any:
    """The tensor with two axes exchanged, the last two by default. A view."""
    axes = list(range(x.ndim))
    a, b = normalize_axis(axis0, x.ndim), normalize_axis(axis1, x.ndim)
    axes[a], axes[b] = b, a
    return permute(x, tuple(axes))


@composite()
def moveaxis(x: Any, source: int, destination: int) -> Any:
    """The tensor with axis `source` moved to position `destination`. A view."""
    axes = list(range(x.ndim))
    axes.insert(normalize_axis(destination, x.ndim), axes.pop(normalize_axis(source, x.ndim)))
    return permute(x, tuple(axes))


@composite()
def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """The tensor without the given axes of length 1, by default all of them. A view."""
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    axes = normalize_axes(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"[squeeze] axis {a} of shape {x.shape} has length {x.shape[a]}; expected 1")
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


@composite()
def unsqueeze(x: Any, axis: int) -> Any:
    """The tensor with a new axis of length 1 at position `axis`. A view."""
    at = normalize_axis(axis, x.ndim + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


@composite()
def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Any:
    """The tensor with axes `start_axis` to `end_axis` (inclusive) merged into one."""
    if x.ndim == 0:
        return reshape(x, (1,))
    a, b = normalize_axis(start_axis, x.ndim), normalize_axis(end_axis, x.ndim)
    return reshape(x, (*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@composite()
def flip(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """The tensor with the elements of the given axes in reverse order. A view."""
    axes = normalize_axes(axis, x.ndim)
    starts = tuple(max(n - 1, 0) if i in axes else 0 for i, n in enumerate(x.shape))
    return slice_(x, starts, x.shape, tuple(-1 if i in axes else 1 for i in range(x.ndim)))


@composite(method=False)
def stack(xs: Sequence[Any], axis: int = 0) -> Any:
    """Tensors of one shape joined along a new axis."""
    return concat([unsqueeze(x, axis) for x in xs], axis)


@composite()
def split(x: Any, sizes: int | Sequence[int], axis: int = 0) -> tuple[Any, ...]:
    """Consecutive parts along `axis`: of `sizes` elements each (the last may be shorter), or of the sizes listed. Views."""
    axis = normalize_axis(axis, x.ndim)
    total = x.shape[axis]
    if isinstance(sizes, int):
        if sizes < 1:
            raise ValueError(f"[split] size {sizes}; expected at least 1")
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    if sum(sizes) != total:
        raise ValueError(
            f"[split] sizes {list(sizes)} add up to {sum(sizes)}; expected {total}, the length of axis {axis}"
        )
    parts, start = [], 0
    for n in sizes:
        starts = tuple(start if i == axis else 0 for i in range(x.ndim))
        parts.append(slice_(x, starts, (*x.shape[:axis], n, *x.shape[axis + 1 :]), (1,) * x.ndim))
        start += n
    return tuple(parts)


@composite()
def chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """`x` cut into `chunks` parts along `axis`, the last possibly shorter. Views."""
    return split(x, -(-x.shape[normalize_axis(axis, x.ndim)] // chunks), axis)


@composite(method=False)
def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` summed over the axes along which `shape` would be broadcast to it: the inverse of broadcasting."""
    if x.shape == tuple(shape):
        return x
    lead = x.ndim - len(shape)
    axes = (*range(lead), *(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1))
    return reshape(x.sum(axis=axes), shape)
