"""Arguments of the kernels of Fourier transforms: numbers that are known when the launch is built are a table of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyhal.backends.common.launching.launch import Arguments, Table
from polyhal.backends.common.problems.fft import Planes
from polyhal.backends.common.problems.fft_arguments import KernelArguments, Value

_NUMBERS = (
    "lanes", "blocks", "groups", "source_count", "target_count", "whole", "source_factors", "target_factors", "fine", "coarse",
    "fine_bits", "half_fine", "half_coarse", "half_bits",
)  # fmt: skip


def bound(source: Planes, target: Planes, arguments: KernelArguments, groups: int, scale: float) -> Arguments:
    """Return the arguments of a launch over `groups` groups, or rows."""
    named = {"source_re": source.re, "source_im": source.im, "target_re": target.re, "target_im": target.im}
    geometry: dict[str, Value] = {**arguments.geometry, "groups": groups}
    starts = {name: 0 if plane is None else plane.start for name, plane in named.items()}
    words = np.array(list(_words(geometry, starts)), np.int64).astype(np.uint32)
    return {
        **{name: plane.memory for name, plane in named.items() if plane is not None},
        "table": arguments.table,
        "geometry": Table(words.tobytes()),
        "scale": scale,
    }


def _words(geometry: dict[str, Value], starts: dict[str, int]) -> Iterator[int]:
    """Yield the numbers in the order of shaders/wgsl/fft/elements.wgsl."""
    for plane, start in starts.items():
        yield start
        yield from _several(geometry[f"{plane}_strides"])
    yield from _several((_one(geometry["mirror_re"]), _one(geometry["mirror_im"])))
    yield from _several(geometry["outer"])[1:]
    yield from _several(geometry["source_position"])
    yield from _several(geometry["target_position"])
    for name in _NUMBERS:
        yield _one(geometry[name])


def _several(value: Value) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return value


def _one(value: Value) -> int:
    assert isinstance(value, int)
    return value
