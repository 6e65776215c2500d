"""Operands beyond the binding size limit: a launch is split into sub-launches, each with a window of the operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, broadcast_strides, extent
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

OPERAND_TOO_LARGE = Declined("an operand exceeds the device's maximum binding size")
ROW_TOO_LARGE = Declined("a row exceeds the device's maximum binding size")


@dataclass(frozen=True, slots=True)
class SubLaunch:
    """One part of a split launch: its specs, and the offset of each tensor in the original one."""

    inputs: tuple[InputSpec | None, ...]
    outputs: tuple[Spec, ...]
    offsets: tuple[int, ...]

    def bind(self, launch: Launch) -> Launch:
        """Return `launch`, made for these specs, as a function of the arguments of the whole launch."""
        specs = (*self.inputs, *self.outputs)

        def run(*args: Any) -> None:
            launch(
                *[
                    Ref(a.handle, s, a.offset + o) if isinstance(s, Spec) else a
                    for a, s, o in zip(args, specs, self.offsets, strict=True)
                ]
            )

        return SimpleLaunch(launch.name, run)


def too_large(runtime: Runtime, *specs: Spec) -> bool:
    """Return whether an operand spans more bytes than a binding."""
    # Binding offsets are multiples of 256 bytes, so up to 256 bytes of a window may be lost.
    limit = runtime.features.max_binding - 256
    return any(_span(s) * s.dtype.itemsize > limit for s in specs)


def split(runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> list[SubLaunch] | None:
    """Split an elementwise launch in two, or return None if every operand fits."""
    specs = [*inputs, *outputs]
    if not too_large(runtime, *[s for s in specs if isinstance(s, Spec)]):
        return None
    shape = outputs[0].shape
    strides = [broadcast_strides(s.shape, s.strides, shape) if isinstance(s, Spec) else () for s in specs]
    # Splitting the axis along which the largest operand spans the most shrinks its span the most.
    largest = max((i for i, s in enumerate(specs) if isinstance(s, Spec)), key=lambda i: _span(specs[i]))
    axis = max(range(len(shape)), key=lambda a: (shape[a] - 1) * abs(strides[largest][a]))
    broadcast = [
        Spec(s.dtype, shape, t, s.aligned) if isinstance(s, Spec) else s for s, t in zip(specs, strides, strict=True)
    ]
    return _halves(broadcast, len(inputs), axis, frozenset())


def halves(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], axis: int, whole: frozenset[int] = frozenset()
) -> list[SubLaunch]:
    """Split a launch in two along `axis` of every tensor, except those with indices in `whole`, which both parts receive."""
    return _halves([*inputs, *outputs], len(inputs), axis, whole)


def _halves(specs: Sequence[InputSpec | None], inputs: int, axis: int, whole: frozenset[int]) -> list[SubLaunch]:
    length = next(s.shape[axis] for i, s in enumerate(specs) if isinstance(s, Spec) and i not in whole)
    half = ceil_div(ceil_div(length, 2), ALIGNMENT) * ALIGNMENT
    if half >= length:
        half = ceil_div(length, 2)
    parts = []
    for start, stop in ((0, half), (half, length)):
        part_specs: list[Any] = []
        offsets = []
        for i, spec in enumerate(specs):
            if not isinstance(spec, Spec) or i in whole:
                part_specs.append(spec)
                offsets.append(0)
                continue
            offset = spec.strides[axis] * start
            shape = (*spec.shape[:axis], stop - start, *spec.shape[axis + 1 :])
            part_specs.append(Spec(spec.dtype, shape, spec.strides, spec.aligned and offset % ALIGNMENT == 0))
            offsets.append(offset)
        parts.append(SubLaunch(tuple(part_specs[:inputs]), tuple(part_specs[inputs:]), tuple(offsets)))
    return parts


def _span(spec: Any) -> int:
    """Return the number of elements from the lowest to the highest address of a spec."""
    low, high = extent(spec.shape, spec.strides)
    return int(high - low + 1)
