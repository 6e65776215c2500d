"""Plans of Fourier transforms along several axes, of the ops `fourier`, `real_fourier` and `half_fourier`.

The first transform reads the operand; the others read and write the result, or temporary memory, in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems.fft import FourierPlan, Load, PassLimits, Plane, Planes, Store, rows_along
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def fourier_plan(
    op: str, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Params, limits: PassLimits
) -> FourierPlan | Declined:
    """Return the steps of a transform, or the reason why the kernels cannot compute it."""
    specs = [s for s in inputs if isinstance(s, Spec)]
    if len(specs) < len(inputs):
        return Declined("an operand is a number")
    planes = [Plane(Tensor(i), s.strides) for i, s in enumerate((*specs, *outputs))]
    plan = FourierPlan(limits, specs[0].dtype.itemsize, len(planes))
    shape, axes, scale = specs[0].shape, tuple(params["axes"]), float(params["scale"])
    lengths = tuple(params.get("lengths") or (shape[a] for a in axes))
    if op == "fourier":
        source, target = Planes(*planes[:2]), Planes(*planes[2:])
        if params["inverse"]:
            source, target = source.swapped, target.swapped
        declined = _complex(plan, shape, source, target, dict(zip(axes, lengths, strict=True)), scale)
    elif op == "real_fourier":
        declined = _real(plan, shape, planes[0], Planes(*planes[1:]), dict(zip(axes, lengths, strict=True)), scale)
    else:
        declined = _half(plan, shape, Planes(*planes[:2]), planes[2], axes, int(params["length"]), scale)
    return declined or plan


def _complex(
    plan: FourierPlan, shape: Sequence[int], source: Planes, target: Planes, lengths: Mapping[int, int], scale: float
) -> Declined | None:
    """Transform along the axes that have `lengths`; numbers of `shape` are followed by zeros along these."""
    present = list(shape)
    for i, (axis, n) in enumerate(lengths.items()):
        rows = rows_along(axis, present, source, target)
        if isinstance(rows, Declined):
            return rows
        load = Load(count=present[axis] if present[axis] < n else 0)
        store = Store(scale=scale if i == len(lengths) - 1 else 1.0)
        if declined := plan.transform(rows, n, load, store):
            return declined
        source, present[axis] = target, n
    return None


def _real(
    plan: FourierPlan, shape: Sequence[int], x: Plane, target: Planes, lengths: Mapping[int, int], scale: float
) -> Declined | None:
    """Transform real numbers along the last of the axes that have `lengths`, then their spectra along the others.

    An even number of them are pairs, unless zeros begin within a pair.
    """
    others = dict(lengths)
    axis, n = others.popitem()
    count, last = shape[axis], 1.0 if others else scale
    kept = n // 2 + 1
    paired = n % 2 == 0 and (count == n or count % 2 == 0)
    rows = rows_along(axis, shape, _pairs(x, axis) if paired else Planes(x, None), target)
    if isinstance(rows, Declined):
        return rows
    if paired:
        declined = plan.half_spectrum(rows, n // 2, count // 2 if count < n else 0, last)
    else:
        declined = plan.transform(rows, n, Load(count=count if count < n else 0), Store(count=kept, scale=last))
    spectra = (*shape[:axis], kept, *shape[axis + 1 :])
    return declined or _complex(plan, spectra, target, target, others, scale)


def _half(
    plan: FourierPlan, shape: Sequence[int], source: Planes, out: Plane, axes: Sequence[int], n: int, scale: float
) -> Declined | None:
    """Transform half spectra, inversely, along all but the last of `axes`, then to real numbers along that one."""
    *others, axis = axes
    if others:
        between = plan.temporary(shape)
        if declined := _complex(plan, shape, source.swapped, between.swapped, {a: shape[a] for a in others}, 1.0):
            return declined
        source = between
    target = _pairs(out, axis) if n % 2 == 0 else Planes(out, None)
    rows = rows_along(axis, shape, source, target.swapped)
    if isinstance(rows, Declined):
        return rows
    assert source.re is not None
    assert source.im is not None
    length = n // 2 if n % 2 == 0 else n
    steps = source.re.strides[axis], source.im.strides[axis]
    load = Load("half_even" if n % 2 == 0 else "half_odd", steps=steps, length=length)
    return plan.transform(rows, length, load, Store(scale=scale))


def _pairs(plane: Plane, axis: int) -> Planes:
    """Return real numbers as half as many complex ones: neighbours along an axis are real and imaginary part."""
    step = plane.strides[axis]
    wide = replace(plane, strides=(*plane.strides[:axis], 2 * step, *plane.strides[axis + 1 :]))
    return Planes(wide, replace(wide, start=plane.start + step))
