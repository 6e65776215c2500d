"""Slices, and `unslice`, which puts a slice back into zeros and so is the gradient of a slice."""

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
from polyhal.hal.ops.tensor_like import Array


def _slice(x: Array, *, starts: Any, lengths: Any, steps: Any) -> Any:
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
    batching=lambda call: call.apply(
        call.inputs[0],
        starts=(0, *call.params["starts"]),
        lengths=(call.size, *call.params["lengths"]),
        steps=(1, *call.params["steps"]),
    ),
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


def _unslice(x: Array, *, shape: tuple[int, ...], starts: tuple[int, ...], steps: tuple[int, ...]) -> Any:
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
    batching=lambda call: call.apply(
        call.inputs[0],
        shape=(call.size, *call.params["shape"]),
        starts=(0, *call.params["starts"]),
        steps=(1, *call.params["steps"]),
    ),
    public=False,
    gradient=lambda g, x_spec, *, shape, starts, steps: slice_(g, starts, x_spec.shape, steps),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),), {"shape": (5, 7), "starts": (1, 6), "steps": (1, -2)})],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)
