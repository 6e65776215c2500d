"""Layer norm and RMS norm operands with the normalised axes merged, checked for support by the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]


@dataclass(frozen=True, slots=True)
class NormGradient:
    """The large operands of a norm's gradient, with their normalised axes merged into one."""

    g: Spec
    x: Spec
    dx: Spec
    g_row: int
    """Stride of the rows of g, in elements."""
    x_row: int
    """Stride of the rows of x, in elements."""


def forward(
    inputs: Inputs, outputs: tuple[Spec, ...], axes: int, *, casts: bool = False
) -> tuple[Spec, Spec] | Declined:
    """Return x and output with the last `axes` axes merged; `inputs` are x, weight and, for layer norm, bias.

    `casts` means that the kernel stores other dtypes than that of x, too.
    """
    x = inputs[0]
    if not isinstance(x, Spec) or (outputs[0].dtype is not x.dtype and not casts):
        return Declined("the operands have different dtypes")
    refusal = parameter_refusal(*inputs[1:])
    flat, out = flatten(x, axes), flatten(outputs[0], axes)
    if refusal or flat is None or out is None:
        return Declined(refusal or "the normalised axes are not contiguous")
    return flat, out


def backward(
    inputs: Inputs, outputs: tuple[Spec, ...], params: Params, *, casts: bool = False
) -> NormGradient | Declined:
    """Return the large operands; `inputs` are g, x, weight and the statistics.

    `casts` means that the kernel reads g in half precision, too, where it computes in the dtype of x.
    """
    g, x = inputs[:2]
    if not isinstance(g, Spec) or not isinstance(x, Spec):
        return Declined("the operands have different dtypes")
    if g.dtype is not x.dtype and not (casts and g.dtype.is_floating_point and accumulator(g.dtype) is x.dtype):
        return Declined("the operands have different dtypes")
    refusal = parameter_refusal(*inputs[2:])
    if any(s is None or s.dtype is not accumulator(x.dtype) for s in inputs[3:]):
        refusal = "the statistics have an unexpected dtype"
    flat = [flatten(s, params["axes"]) for s in (g, x, outputs[0])]
    if refusal or flat[0] is None or flat[1] is None or flat[2] is None:
        return Declined(refusal or "the normalised axes are not contiguous")
    g_row, x_row = _row_step(flat[0]), _row_step(flat[1])
    if g_row is None or x_row is None:
        return Declined("the rows are not evenly spaced")
    return NormGradient(flat[0], flat[1], flat[2], g_row, x_row)


def parameter_refusal(*parameters: InputSpec | None) -> str:
    """Return the reason why weights, biases or statistics are not supported; empty if they are."""
    for s in parameters:
        if s is not None and not (isinstance(s, Spec) and s.is_contiguous and s.dtype.is_floating_point):
            return "a weight, bias or statistic is not contiguous"
    return ""


def flatten(spec: Spec, axes: int) -> Spec | None:
    """Merge the last `axes` axes of a spec; None if they are not contiguous."""
    lead, tail = spec.ndim - axes, spec.shape[spec.ndim - axes :]
    lengths, (steps,) = collapse(tail, (spec.strides[lead:],))
    if len(lengths) > 1 or (lengths[0] > 1 and steps[0] != 1):
        return None
    return Spec(spec.dtype, (*spec.shape[:lead], lengths[0]), (*spec.strides[:lead], 1), spec.aligned)


def _row_step(spec: Spec) -> int | None:
    """Return the stride of the rows of a flattened spec, or None if it varies."""
    lengths, (steps,) = collapse(spec.shape[:-1], (spec.strides[:-1],))
    return steps[0] if len(lengths) == 1 else None
