"""Convolutions in 16 bits of images with channels first, by the kernels for channels last between transposed copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl_c.lowering.conv import boxes, products
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Launch, SimpleLaunch

_MIN_WORK = 1 << 28
"""Minimum multiply-adds for which the copies are worth their time."""
Build = Callable[[Runtime, Convolution], Launch | None]


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the convolution; None if another kernel is faster or needed."""
    return _between_copies(runtime, c, (products.forward, boxes.forward), ("first", "out"))


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the gradient of the input; None if another kernel is faster or needed."""
    return _between_copies(runtime, c, (products.input_grad, boxes.input_grad), ("first", "out"))


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the gradient of the weight; None if another kernel is faster or needed."""
    return _between_copies(runtime, c, (products.weight_grad, boxes.weight_grad), ("first", "second"))


def _between_copies(
    runtime: Runtime, c: Convolution, builds: tuple[Build, ...], images: tuple[str, ...]
) -> Launch | None:
    g = c.geometry
    if g.images * g.pixels * g.filters * g.taps < _MIN_WORK or not boxes.suits(runtime, c):
        return None
    places = {"first": 0, "second": 1, "out": c.target}
    given: dict[str, Spec] = {name: getattr(c, name) for name in images}
    copied = {places[name]: _channels_last(spec) for name, spec in given.items() if spec.strides[1] != 1}
    turned: dict[str, Any] = {name: copied.get(places[name], spec) for name, spec in given.items()}
    inner = next(filter(None, (build(runtime, replace(c, **turned)) for build in builds)), None)
    if inner is None:
        return None
    first = c.target + 1
    workspaces = dict(zip(copied, range(first, first + len(copied)), strict=True))
    steps: list[Launch] = [
        copy.to_workspace(runtime, given[name], place, copied[place], workspaces[place])
        for name, place in places.items()
        if place in copied and name != "out"
    ]

    def run(*args: Any) -> None:
        own = [Ref(args[workspaces[i]], copied[i]) if i in copied else args[i] for i in range(first)]
        inner(*own, *args[first + len(copied) :])

    steps.append(SimpleLaunch(inner.name, run))
    if c.target in copied:
        steps.append(copy.from_workspace(runtime, copied[c.target], workspaces[c.target], given["out"], c.target))
    return LaunchSequence(steps, (*(spec.nbytes for spec in copied.values()), *inner.workspace))


def _channels_last(spec: Spec) -> Spec:
    """Return the layout of a contiguous copy with channels last."""
    _, channels, height, width = spec.shape
    return Spec(spec.dtype, spec.shape, (height * width * channels, 1, width * channels, channels), True)
