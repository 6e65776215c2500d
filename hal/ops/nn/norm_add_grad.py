"""Gradients of norms in residual networks: with an addend, and also in the dtype of the products that read them.

In a residual block the gradient of a norm's input is added to the gradient that comes past the block, and then cast for the
products of the layer before. Kernels of the norm's gradient do all that before they store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Decompose, Output, Params, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.nn.norm import all_elements, layer_norm_grad, norm_grad_samples, rms_norm_grad
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _summed(found: tuple[Any, ...], addend: Any, cast_dtype: Any) -> tuple[Any, ...]:
    """The gradients with the addend, then the first of them once more if it is also stored in another dtype."""
    dx = found[0] if addend is None else found[0] + addend
    return (dx, *found[1:]) if cast_dtype is None else (dx, *found[1:], dx)


def _layer_norm_add_grad(
    grad: Array,
    x: Any,
    weight: Array | None = None,
    mean: Any = None,
    rstd: Any = None,
    addend: Array | None = None,
    *,
    axes: int = 1,
    cast_dtype: Any = None,
) -> Any:
    """`layer_norm_grad` with `addend` added to the gradient of the input, which is also returned in `cast_dtype`, if given."""
    return _summed(OPS["layer_norm_grad"].reference(grad, x, weight, mean, rstd, axes=axes), addend, cast_dtype)


def _rms_norm_add_grad(
    grad: Array,
    x: Any,
    weight: Array | None = None,
    rstd: Any = None,
    addend: Array | None = None,
    *,
    axes: int = 1,
    cast_dtype: Any = None,
) -> Any:
    """`rms_norm_grad` with `addend` added to the gradient of the input, which is also returned in `cast_dtype`, if given."""
    return _summed(OPS["rms_norm_grad"].reference(grad, x, weight, rstd, axes=axes), addend, cast_dtype)


def _infer(base: str) -> Any:
    def infer(specs: Specs, params: Params) -> list[Output]:
        x = tensor_at(specs, 1)
        addend = specs[-1]
        if addend is not None and (addend.dtype, addend.shape) != (x.dtype, x.shape):
            raise ValueError(
                f"addend is {addend.dtype.name}{list(addend.shape)}; expected {x.dtype.name}{list(x.shape)}"
            )
        found = OPS[base].infer(specs[:-1], {"axes": params["axes"]})
        return [*found] if params["cast_dtype"] is None else [*found, (params["cast_dtype"], x.shape)]

    return infer


def _layer_norm_decomposed(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike | None,
    mean: TensorLike,
    rstd: TensorLike,
    addend: TensorLike | None,
    *,
    axes: int,
    cast_dtype: Any,
) -> Any:
    return _with_cast(_summed(layer_norm_grad(g, x, weight, mean, rstd, axes), addend, cast_dtype), cast_dtype)


def _rms_norm_decomposed(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike | None,
    rstd: TensorLike,
    addend: TensorLike | None,
    *,
    axes: int,
    cast_dtype: Any,
) -> Any:
    return _with_cast(_summed(rms_norm_grad(g, x, weight, rstd, axes), addend, cast_dtype), cast_dtype)


def _with_cast(found: tuple[Any, ...], cast_dtype: Any) -> tuple[Any, ...]:
    return found if cast_dtype is None else (*found[:-1], cast(found[-1], dtype=cast_dtype))


def _samples(rng: np.random.Generator) -> list[Sample]:
    found = []
    for i, sample in enumerate(norm_grad_samples(rng)):
        addend = None if i % 3 == 2 else rng.uniform(-1, 1, sample.inputs[1].shape)
        params = {**sample.params, "cast_dtype": (dtypes.bfloat16, None)[i % 2]}
        found.append(Sample((*sample.inputs, addend), params, differentiable=False, note=sample.note))
    return found


def _rms_norm_samples(rng: np.random.Generator) -> list[Sample]:
    found = []
    for sample in _samples(rng):
        g, x, weight, _, _, addend = sample.inputs
        rstd = OPS["rms_norm"].reference(x, axes=sample.params["axes"])[1]
        found.append(replace(sample, inputs=(g, x, weight, rstd, addend)))
    return found


layer_norm_add_grad = declare(
    _layer_norm_add_grad,
    name="layer_norm_add_grad",
    family="norm",
    public=False,
    infer=_infer("layer_norm_grad"),
    variadic_outputs=True,
    lowering=Decompose(_layer_norm_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
)

rms_norm_add_grad = declare(
    _rms_norm_add_grad,
    name="rms_norm_add_grad",
    family="norm",
    public=False,
    infer=_infer("rms_norm_grad"),
    variadic_outputs=True,
    lowering=Decompose(_rms_norm_decomposed),
    samples=_rms_norm_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
)
