"""Ops that return views: reshape, permute, broadcast_to, and `contiguous`, which copies where a view will not do.

A view costs nothing: it is another spec and offset of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec, View, normalize_axis
from polyhal.hal.ops import batching
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.declare import (
    AsView,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
    first_tensor,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike

EXACT = Tolerance(0.0)
"""Movement ops change no bit."""


def infer_same(specs: Specs, params: Params) -> list[Output]:
    """The dtype and shape of the first input."""
    spec = first_tensor(specs)
    return [(spec.dtype, spec.shape)]


def copy_region(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    """The whole output, copied from the first input."""
    return [OutputRegion(View(outputs[0].shape, outputs[0].strides), 0)]


def _contiguous(x: Array) -> Any:
    """The tensor in row-major order."""
    return np.ascontiguousarray(x)


contiguous = declare(
    _contiguous,
    name="contiguous",
    family="movement",
    infer=infer_same,
    lowering=(
        AsView(lambda spec, params: View(spec.shape, spec.strides) if spec.is_contiguous else None),
        Regions(copy_region),
    ),
    traits=Trait.LAYOUT_TRANSPARENT | Trait.JOINS_OPERANDS,
    batching=batching.leading,
    gradient=lambda g: g,
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),))],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _reshape(x: Array, *, shape: tuple[int, ...]) -> Any:
    """The elements in row-major order in another shape; one length may be -1."""
    return np.reshape(x, shape)


def _infer_reshape(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
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


def _batched_reshape(call: BatchedCall) -> Any:
    shape = {"shape": call.params["shape"]}
    _infer_reshape((layout.contiguous(call.inputs[0].dtype, call.shape(0)),), shape)
    return call.apply(call.inputs[0], shape=(call.size, *shape["shape"]))


reshape: OpFunction = declare(
    _reshape,
    name="reshape",
    family="movement",
    infer=_infer_reshape,
    lowering=(
        AsView(lambda spec, params: layout.reshape(spec, params["shape"])),
        Decompose(lambda x, *, shape: reshape(contiguous(x), shape), widen=False),
    ),
    traits=Trait.LAYOUT_TRANSPARENT,
    batching=_batched_reshape,
    gradient=lambda g, x_spec: reshape(g, x_spec.shape),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (4, 6)),), {"shape": (2, -1, 3)}),
        Sample((rng.uniform(-1, 1, (2, 3)),), {"shape": (6,)}),
        Sample((rng.uniform(-1, 1, (1,)),), {"shape": ()}),
        Sample((rng.uniform(-1, 1, (0, 3)),), {"shape": (3, 0, 2)}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"shape": (4,)}, ValueError, "6 elements")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _permute(x: Array, *, axes: Any) -> Any:
    """The tensor with axis `axes[i]` at position i."""
    return np.transpose(x, axes)


def _infer_permute(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    axes = tuple(normalize_axis(a, spec.ndim) for a in params["axes"])
    if sorted(axes) != list(range(spec.ndim)):
        raise ValueError(f"axes {params['axes']} are no permutation of the {spec.ndim} axes")
    params["axes"] = axes
    return [(spec.dtype, tuple(spec.shape[a] for a in axes))]


def _inverse(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda i: axes[i]))


def _batched_permute(call: BatchedCall) -> Any:
    axes = (normalize_axis(a, call.rank(0)) + 1 for a in call.params["axes"])
    return call.apply(call.inputs[0], axes=(0, *axes))


permute: OpFunction = declare(
    _permute,
    name="permute",
    family="movement",
    infer=_infer_permute,
    lowering=AsView(lambda spec, params: layout.permute(spec, params["axes"])),
    traits=Trait.LAYOUT_TRANSPARENT,
    batching=_batched_permute,
    gradient=lambda g, *, axes: permute(g, _inverse([a % g.ndim for a in axes])),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3, 4)),), {"axes": (2, 0, 1)}),
        Sample((rng.uniform(-1, 1, (5, 3)),), {"axes": (-1, 0)}),
        Sample((rng.uniform(-1, 1, ()),), {"axes": ()}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"axes": (0, 0)}, ValueError, "no permutation")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _broadcast_to(x: Array, *, shape: Any) -> Any:
    """The tensor stretched to `shape` under NumPy's rules."""
    return np.broadcast_to(x, shape)


def _infer_broadcast(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    shape = tuple(params["shape"])
    layout.broadcast_strides(spec.shape, spec.strides, shape)
    params["shape"] = shape
    return [(spec.dtype, shape)]


def _broadcast_view(spec: Spec, params: Params) -> View:
    return View(params["shape"], layout.broadcast_strides(spec.shape, spec.strides, params["shape"]))


@composite(method=False, returns=Returns.COPY)
def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` summed over the axes along which `shape` would be broadcast to it: the inverse of broadcasting."""
    if x.shape == tuple(shape):
        return x
    lead = x.ndim - len(shape)
    axes = (*range(lead), *(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1))
    return reshape(x.sum(axis=axes), shape)


@composite(returns=Returns.COPY)
def sum_to_size(x: TensorLike, *size: Any) -> Any:
    """`x` summed over the axes along which `size` would be broadcast to it. Raises ValueError where it would not.

    Compare `torch.Tensor.sum_to_size`.
    """
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    tail = x.shape[x.ndim - len(shape) :]
    if len(shape) > x.ndim or any(n not in (1, m) for n, m in zip(shape, tail, strict=False)):
        raise ValueError(f"[sum_to_size] a tensor of shape {shape} does not broadcast to {x.shape}")
    return sum_to(x, shape)


def _batched_broadcast(call: BatchedCall) -> Any:
    shape = tuple(call.params["shape"])
    missing = len(shape) - call.rank(0)
    return call.apply(reshape(call.inputs[0], (call.size, *(1,) * missing, *call.shape(0))), shape=(call.size, *shape))


broadcast_to = declare(
    _broadcast_to,
    name="broadcast_to",
    family="movement",
    infer=_infer_broadcast,
    lowering=AsView(_broadcast_view),
    batching=_batched_broadcast,
    gradient=lambda g, x_spec: sum_to(g, x_spec.shape),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 1)),), {"shape": (2, 3, 4)}),
        Sample((rng.uniform(-1, 1, ()),), {"shape": (5,)}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"shape": (2, 4)}, ValueError, "broadcast")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)
