"""Operands larger than what a kernel can see at once: the work is split along the longest axis of the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.geometry import ceil_div
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


def split(
    runtime: Runtime, inputs: Sequence[InputSpec | None], outputs: Sequence[Spec]
) -> list[Part] | None:
    """The pieces of an elementwise launch, or None where every operand fits."""
    specs = [*inputs, *outputs]
    if not too_large(runtime, *[s for s in specs if isinstance(s, Spec)]):
        return None
    shape = outputs[0].shape
    strides = [broadcast_strides(s.shape, s.strides, shape) if isinstance(s, Spec) else () for s in specs]
    # Splitting the axis on which the largest operand reaches farthest shrinks its span the most.
    largest = max((i for i, s in enumerate(specs) if isinstance(s, Spec)), key=lambda i: _span(specs[i]))
    axis = max(range(len(shape)), key=lambda a: (shape[a] - 1) * abs(strides[largest][a]))
    half = ceil_div(ceil_div(shape[axis], 2), ALIGNMENT) * ALIGNMENT
    if half >= shape[axis]:
        half = ceil_div(shape[axis], 2)
    parts = []
    for start, length in ((0, half), (half, shape[axis] - half)):
        cut = (*shape[:axis], length, *shape[axis + 1 :])
        moved = [s[axis] * start if isinstance(spec, Spec) else 0 for s, spec in zip(strides, specs, strict=True)]
        made = [
            Spec(spec.dtype, cut, s, spec.aligned and move % ALIGNMENT == 0) if isinstance(spec, Spec) else spec
            for spec, s, move in zip(specs, strides, moved, strict=True)
        ]
        n = len(inputs)
        parts.append(Part(tuple(made[:n]), tuple(made[n:]), tuple(moved)))  # type: ignore[arg-type]
    return parts


def _span(spec: Any) -> int:
    low, high = extent(spec.shape, spec.strides)
    return int(high - low + 1)
