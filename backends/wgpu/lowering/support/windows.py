"""Operands larger than what a kernel can see at once: the work is split along the longest axis of the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, broadcast_strides, extent
from polyhal.hal.protocol import InputSpec, Launch


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a split launch: its specs, and how far each tensor moved inside its own."""

    inputs: tuple[InputSpec | None, ...]
    outputs: tuple[Spec, ...]
    offsets: tuple[int, ...]

    def around(self, launch: Launch) -> Callable[..., None]:
        """The launch of this piece as a function of the whole's arguments."""
        specs = (*self.inputs, *self.outputs)

        def run(*args: Any) -> None:
            launch(*[
                Ref(a.handle, s, a.offset + o) if isinstance(s, Spec) else a
                for a, s, o in zip(args, specs, self.offsets, strict=True)
            ])  # fmt: skip

        return run


def too_large(runtime: Runtime, *specs: Spec) -> bool:
    """Whether some operand spans more bytes than a kernel can see."""
    # The window of a binding starts at a multiple of 256 bytes, which may cost up to that much.
    limit = runtime.features.max_binding - 256
    return any(_span(s) * s.dtype.itemsize > limit for s in specs)


def split(runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]) -> list[Part] | None:
    """The pieces of an elementwise launch, or None where every operand fits."""
    specs = [*inputs, *outputs]
    if not too_large(runtime, *[s for s in specs if isinstance(s, Spec)]):
        return None
    shape = outputs[0].shape
    strides = [broadcast_strides(s.shape, s.strides, shape) if isinstance(s, Spec) else () for s in specs]
    # Splitting the axis on which the largest operand reaches farthest shrinks its span the most.
    largest = max((i for i, s in enumerate(specs) if isinstance(s, Spec)), key=lambda i: _span(specs[i]))
    axis = max(range(len(shape)), key=lambda a: (shape[a] - 1) * abs(strides[largest][a]))
    strided = [
        Spec(s.dtype, shape, t, s.aligned) if isinstance(s, Spec) else s for s, t in zip(specs, strides, strict=True)
    ]
    return _halves(strided, len(inputs), axis, frozenset())


def halves(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], axis: int, whole: frozenset[int] = frozenset()
) -> list[Part]:
    """The two pieces of a launch along `axis` of every tensor but those at the positions `whole`, which both receive."""
    return _halves([*inputs, *outputs], len(inputs), axis, whole)


def _halves(specs: Sequence[InputSpec | None], inputs: int, axis: int, whole: frozenset[int]) -> list[Part]:
    length = next(s.shape[axis] for i, s in enumerate(specs) if isinstance(s, Spec) and i not in whole)
    half = ceil_div(ceil_div(length, 2), ALIGNMENT) * ALIGNMENT
    if half >= length:
        half = ceil_div(length, 2)
    parts = []
    for start, stop in ((0, half), (half, length)):
        made: list[Any] = []
        moved = []
        for i, spec in enumerate(specs):
            if not isinstance(spec, Spec) or i in whole:
                made.append(spec)
                moved.append(0)
                continue
            move = spec.strides[axis] * start
            cut = (*spec.shape[:axis], stop - start, *spec.shape[axis + 1 :])
            made.append(Spec(spec.dtype, cut, spec.strides, spec.aligned and move % ALIGNMENT == 0))
            moved.append(move)
        parts.append(Part(tuple(made[:inputs]), tuple(made[inputs:]), tuple(moved)))
    return parts


def _span(spec: Any) -> int:
    low, high = extent(spec.shape, spec.strides)
    return int(high - low + 1)
