"""Convolutions of large batches in chunks of images, within the limits of kernels' indices and of workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.hal import dtypes
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

MAX_WORKSPACE = 1 << 30
"""Maximum bytes of workspace; larger batches are split."""
_LARGE = 1 << 26
"""Minimum elements of an operand for which its size may be the reason to decline."""

AddUp = Callable[[Any, Spec, int, int, int], Launch]
"""`add_up(runtime, out, parts, workspace, target)` returns the launch that sums consecutive results in a workspace into the
argument `target`. The results are float64 for an `out` of float64, and float32 otherwise."""
Lower = Callable[[tuple[InputSpec | None, ...], tuple[Spec, ...], Mapping[str, Any]], Launch | Declined]
"""`lower(inputs, outputs, params)` returns the launch of a convolution or of a gradient, or the reason why there is none."""


def whole_or_pieces(
    op: str,
    lower: Lower,
    inputs: tuple[InputSpec | None, ...],
    outputs: tuple[Spec, ...],
    params: Params,
    add_up: Callable[[Spec, int, int, int], Launch] | None,
) -> Launch | Declined:
    """Call `lower`, for chunks of images if the batch is too large. Weight gradients are split only with `add_up`."""
    launch = lower(inputs, outputs, params)
    first, (out,) = inputs[0], outputs
    if not isinstance(first, Spec) or first.shape[0] < 2 or not _too_large(launch, first, out):
        return launch
    if op != "conv2d_weight_grad":
        return _image_by_image(lower, inputs, out, params) or launch
    return (add_up and _added_up(lower, inputs, out, params, add_up)) or launch


def _too_large(launch: Launch | Declined, *specs: Spec) -> bool:
    if isinstance(launch, Declined):
        return max(s.size for s in specs) >= _LARGE
    return sum(launch.workspace) > MAX_WORKSPACE


def _image_by_image(lower: Lower, inputs: tuple[InputSpec | None, ...], out: Spec, params: Params) -> Launch | None:
    """Return the launches of a convolution, or of an input gradient, by chunks of images; None if no chunk is supported."""
    first, target = inputs[0], len(inputs)
    assert isinstance(first, Spec)

    def piece(images: int, each: int) -> Launch | Declined:
        shape = {"shape": (images, *out.shape[1:])} if "shape" in params else {}
        some = (_images(first, images, each), *inputs[1:])
        return lower(some, (_images(out, images, each),), {**params, **shape})

    found = _divided(first.shape[0], piece)
    if found is None:
        return None
    launches, each = found

    def bound(launch: Launch, start: int) -> Launch:
        def run(*args: Any) -> None:
            moved = list(args)
            for place, spec in ((0, first), (target, out)):
                moved[place] = Ref(args[place].handle, args[place].spec, args[place].offset + start * spec.strides[0])
            launch(*moved)

        return SimpleLaunch(launch.name, run)

    return LaunchSequence([bound(launch, i * each) for i, launch in enumerate(launches)], _workspace(launches))


def _added_up(
    lower: Lower,
    inputs: tuple[InputSpec | None, ...],
    out: Spec,
    params: Params,
    add_up: Callable[[Spec, int, int, int], Launch],
) -> Launch | None:
    """Return the launches of a weight gradient that sum the results of chunks of images; None if no chunk is supported."""
    g, x = inputs
    assert isinstance(g, Spec)
    assert isinstance(x, Spec)
    part = contiguous(dtypes.float64 if out.dtype is dtypes.float64 else dtypes.float32, out.shape)

    def piece(images: int, each: int) -> Launch | Declined:
        return lower((_images(g, images, each), _images(x, images, each)), (part,), params)

    found = _divided(g.shape[0], piece)
    if found is None:
        return None
    launches, each = found
    workspace = _workspace(launches)
    parts = 3 + len(workspace)

    def bound(launch: Launch, number: int) -> Launch:
        def run(*args: Any) -> None:
            start = number * each
            operands = [Ref(a.handle, a.spec, a.offset + start * a.spec.strides[0]) for a in args[:2]]
            launch(*operands, Ref(args[parts], part, number * part.size), *args[3:parts])

        return SimpleLaunch(launch.name, run)

    steps = [bound(launch, i) for i, launch in enumerate(launches)]
    steps.append(add_up(out, len(launches), parts, 2))
    return LaunchSequence(steps, (*workspace, len(launches) * part.size * part.dtype.itemsize))


def _divided(images: int, piece: Callable[[int, int], Launch | Declined]) -> tuple[list[Launch], int] | None:
    """Return launches for equal chunks of images that fit, and the images per chunk; the last chunk may be smaller."""
    each = images
    while True:
        each = ceil_div(each, 2)
        launch = piece(each, each)
        if not isinstance(launch, Declined) and (each == 1 or sum(launch.workspace) <= MAX_WORKSPACE):
            break
        if each == 1:
            return None
    rest = images % each
    last = piece(rest, each) if rest else None
    if isinstance(last, Declined):
        return None
    return [launch] * (images // each) + ([last] if last else []), each


def _images(spec: Spec, images: int, each: int) -> Spec:
    """Return the spec of a chunk of images that starts at a multiple of `each`."""
    aligned = spec.aligned and each * spec.strides[0] % ALIGNMENT == 0
    return Spec(spec.dtype, (images, *spec.shape[1:]), spec.strides, aligned)


def _workspace(launches: list[Launch]) -> tuple[int, ...]:
    """Return the sizes of workspaces, in bytes, that consecutive launches share."""
    return tuple(max(sizes) for sizes in zip_longest(*(launch.workspace for launch in launches), fillvalue=1))
