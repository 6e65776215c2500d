"""Slices, sliding windows, and `unslice`, which puts a slice back into zeros and so is the gradient of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec, View
from polyhal.hal.ops.declare import (
    AsView,
    ErrorSample,
    OpFunction,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    Trait,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.views import EXACT


def _slice(x: Any, *, starts: Any, lengths: Any, steps: Any) -> Any:
    """`lengths[i]` elements of each axis i, from `starts[i]` in steps of `steps[i]`, which may be negative. A view."""
    index = [[a + k * s for k in range(n)] for a, n, s in zip(starts, lengths, steps, strict=True)]
    return np.asarray(x)[np.ix_(*[np.array(i, int) for i in index])] if index else np.asarray(x)


def _infer_slice(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
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
    infer=_infer_slice,
    lowering=AsView(lambda spec, params: layout.slice_view(spec, params["starts"], params["lengths"], params["steps"])),
    traits=Trait.LAYOUT_TRANSPARENT,
    public=False,
    gradient=lambda g, x_spec, *, starts, lengths, steps: unslice(g, x_spec.shape, starts, steps),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (5, 7)),), {"starts": (1, 6), "lengths": (3, 4), "steps": (1, -2)}),
        Sample((rng.uniform(-1, 1, (5,)),), {"starts": (0,), "lengths": (0,), "steps": (1,)}),
    ],
    errors=[ErrorSample((np.zeros(3),), {"starts": (2,), "lengths": (2,), "steps": (1,)}, ValueError, "no 2 elements")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _unslice(x: Any, *, shape: Any, starts: Any, steps: Any) -> Any:
    """Zeros of `shape` with `x` placed from `starts` in steps of `steps`: the inverse of slice."""
    x = np.asarray(x)
    out = np.zeros(shape, x.dtype)
    index = [np.array([a + k * s for k in range(n)], int) for a, n, s in zip(starts, x.shape, steps, strict=True)]
    if index:
        out[np.ix_(*index)] = x
    else:
        out[...] = x
    return out


def _infer_unslice(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    shape, starts, steps = (tuple(params[k]) for k in ("shape", "starts", "steps"))
    _infer_slice((layout.contiguous(spec.dtype, shape),), {"starts": starts, "lengths": spec.shape, "steps": steps})
    params.update(shape=shape, starts=starts, steps=steps)
    return [(spec.dtype, shape)]


def _unslice_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    out = outputs[0]
    target = layout.slice_view(out, params["starts"], first_tensor(specs).shape, params["steps"])
    copied = OutputRegion(target, 0)
    return [copied] if target.shape == out.shape else [OutputRegion(View(out.shape, out.strides), value=0), copied]


unslice: OpFunction = declare(
    _unslice,
    name="unslice",
    family="movement",
    infer=_infer_unslice,
    lowering=Regions(_unslice_regions),
    public=False,
    gradient=lambda g, x_spec, *, shape, starts, steps: slice_(g, starts, x_spec.shape, steps),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),), {"shape": (5, 7), "starts": (1, 6), "steps": (1, -2)})],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
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
    spec = first_tensor(specs)
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
    """The sum over kernel positions of the gradient's slice at that position, put back where it was read."""
    n = len(kernel)
    lead = g.ndim - 2 * n
    total = None
    for position in np.ndindex(*kernel):
        starts = (0,) * lead + tuple(p * d for p, d in zip(position, dilation, strict=True))
        placed = unslice(g[(..., *position)], x_spec.shape, starts, (1,) * lead + tuple(stride))
        total = placed if total is None else total + placed
    return total


windows = declare(
    _windows,
    name="windows",
    family="movement",
    infer=_infer_windows,
    lowering=AsView(_windows_view),
    public=False,
    gradient=_windows_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 6, 7)),), {"kernel": (3, 2), "stride": (2, 1), "dilation": (1, 2)}),
        Sample((rng.uniform(-1, 1, (5,)),), {"kernel": (2,), "stride": (1,), "dilation": (1,)}),
    ],
    errors=[
        ErrorSample((np.zeros((3,)),), {"kernel": (4,), "stride": (1,), "dilation": (1,)}, ValueError, "does not fit")
    ],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)
