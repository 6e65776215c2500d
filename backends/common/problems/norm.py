"""What the kernels of layer and root-mean-square norm ask of their operands, whatever the shader language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec

Inputs = tuple[InputSpec | None, ...]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The operands of a norm's gradient with their normalised axes as one."""

    g: Spec
    x: Spec
    dx: Spec
    g_row: int
    """Elements from one row of g to the next."""
    x_row: int


def forward(inputs: Inputs, outputs: tuple[Spec, ...], axes: int) -> tuple[Spec, Spec] | Declined:
    """Input and output with the last `axes` axes as one; `inputs` are x, weight and, where there is one, bias."""
    x = inputs[0]
    if not isinstance(x, Spec) or outputs[0].dtype is not x.dtype:
        return Declined("operands of different dtypes")
    refusal = small_refusal(*inputs[1:])
    flat, out = _flat(x, axes), _flat(outputs[0], axes)
    if refusal or flat is None or out is None:
        return Declined(refusal or "the normalised axes are not contiguous")
    return flat, out


def backward(inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]) -> Gradient | Declined:
    """The large operands; `inputs` are g, x, weight and the statistics."""
    g, x = inputs[:2]
    if not isinstance(g, Spec) or not isinstance(x, Spec) or g.dtype is not x.dtype:
        return Declined("operands of different dtypes")
    refusal = small_refusal(*inputs[2:])
    if any(s is None or s.dtype is not accumulator(x.dtype) for s in inputs[3:]):
        refusal = "statistics of an unexpected dtype"
    flat = [_flat(s, params["axes"]) for s in (g, x, outputs[0])]
    if refusal or flat[0] is None or flat[1] is None or flat[2] is None:
        return Declined(refusal or "the normalised axes are not contiguous")
    g_row, x_row = _row_step(flat[0]), _row_step(flat[1])
    if g_row is None or x_row is None:
        return Declined("the rows are not evenly spaced")
    return Gradient(flat[0], flat[1], flat[2], g_row, x_row)


def small_refusal(*small: InputSpec | None) -> str:
    """Why weights or statistics cannot be used; empty when they can."""
    for s in small:
        if s is not None and not (isinstance(s, Spec) and s.is_contiguous and s.dtype.is_floating_point):
            return "a weight, bias or statistic is not contiguous"
    return ""


def _flat(spec: Spec, axes: int) -> Spec | None:
    """The spec with its last `axes` axes as one, or None where they are not contiguous."""
    lead, tail = spec.ndim - axes, spec.shape[spec.ndim - axes :]
    lengths, (steps,) = collapse(tail, (spec.strides[lead:],))
    if len(lengths) > 1 or (lengths[0] > 1 and steps[0] != 1):
        return None
    return Spec(spec.dtype, (*spec.shape[:lead], lengths[0]), (*spec.strides[:lead], 1), spec.aligned)


def _row_step(spec: Spec) -> int | None:
    """The distance between rows of a flattened spec, or None where they are not evenly spaced."""
    lengths, (steps,) = collapse(spec.shape[:-1], (spec.strides[:-1],))
    return steps[0] if len(lengths) == 1 else None
