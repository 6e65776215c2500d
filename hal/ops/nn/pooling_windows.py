"""Windows of pooling over two axes: parameters, shapes and the padded image, for max and average pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Params, Specs, tensor_at
from polyhal.hal.ops.layout.regions import pad
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.nn.window_shape import Pair, output_length, pair
from polyhal.hal.ops.tensor_like import TensorLike

CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 8), {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "ceil_mode": False}),
    ((1, 2, 7, 5), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1), "ceil_mode": False}),
    ((2, 1, 6, 7), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True}),
    ((1, 2, 5, 5), {"kernel": (2, 2), "stride": (2, 3), "padding": (0, 0), "ceil_mode": True}),
    ((1, 3, 4, 4), {"kernel": (4, 4), "stride": (4, 4), "padding": (0, 0), "ceil_mode": False}),
]
"""Image shapes and parameters of samples."""


def image(specs: Specs, i: int = 0) -> Spec:
    """The input of position `i`. Raises ValueError unless it is a batch of images."""
    spec = tensor_at(specs, i)
    if spec.ndim != 4:
        raise ValueError(f"got {spec}; expected (N, C, H, W)")
    return spec


def normalize_window(params: dict[str, Any]) -> tuple[Pair, Pair, Pair, Pair]:
    """Kernel, stride, padding and dilation as pairs, which replace those in `params`. Raises ValueError."""
    kernel = params["kernel"] = pair(params["kernel"], "kernel", 1)
    params["stride"] = kernel if params["stride"] is None else pair(params["stride"], "stride", 1)
    params["padding"] = pair(params["padding"], "padding", 0)
    params["ceil_mode"] = bool(params["ceil_mode"])
    if "dilation" in params:
        params["dilation"] = pair(params["dilation"], "dilation", 1)
    dilation = params.get("dilation", (1, 1))
    if any(2 * p > (k - 1) * d + 1 for p, k, d in zip(params["padding"], kernel, dilation, strict=True)):
        raise ValueError(f"padding {params['padding']} is more than half of kernel {kernel} with dilation {dilation}")
    return kernel, params["stride"], params["padding"], dilation


def pooled(shape: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the result for images of `shape`. Raises ValueError."""
    window = normalize_window(params)
    return (*shape[:2], *(output_length(*v, params["ceil_mode"]) for v in zip(shape[2:], *window, strict=True)))


def pooled_sample(shape: tuple[int, ...], params: Params) -> tuple[int, ...]:
    """As `pooled`, for a sample's parameters, which are not modified."""
    return pooled(shape, dict(params))


def borders(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[Pair, ...]:
    """Padding (before, after) of both axes: the requested padding, and in ceil mode also the reach of the last windows."""
    out = []
    for n, k, s, p, d in zip(shape[2:], kernel, stride, padding, dilation, strict=True):
        reach = (output_length(n, k, s, p, d, ceil_mode) - 1) * s + (k - 1) * d + 1
        out.append((p, max(p, reach - n - p)))
    return tuple(out)


def padded(x: TensorLike, frame: tuple[Pair, ...], value: float) -> Any:
    """Images with these borders of `value`."""
    return x if all(w == (0, 0) for w in frame) else pad(x, ((0, 0), (0, 0), *frame), value)


def padded_shape(shape: tuple[int, ...], frame: tuple[Pair, ...]) -> tuple[int, ...]:
    """The shape of images with these borders."""
    return (*shape[:2], *(n + a + b for n, (a, b) in zip(shape[2:], frame, strict=True)))


def without_borders(x: TensorLike | None, frame: tuple[Pair, ...], shape: tuple[int, ...]) -> Any:
    """Images of `shape` inside these borders. A view."""
    return slice_(x, (0, 0, frame[0][0], frame[1][0]), shape, (1, 1, 1, 1))


def positions(kernel: Pair, stride: Pair, dilation: Pair) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Starts and steps of the slice of the padded image that each kernel position reads."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            yield (0, 0, i * dilation[0], j * dilation[1]), (1, 1, *stride)


def kernel_size(specs: Specs, params: Params) -> int:
    """Terms of each result."""
    return int(params["kernel"][0] * params["kernel"][1])
