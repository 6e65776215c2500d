"""Resizing of images and sequences, and sampling of images at coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.ops.nn.resample_tables import Method
from polyhal.nn.functional.adaptive_pooling import resampled
from polyhal.torch.registration import aten
from polyhal.torch.table.differentiation import gradients_of
from polyhal.torch.table.operands import F, cast

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Scales = Sequence[float | None]


def _steps(
    lengths: Sequence[int], sizes: Sequence[int], kind: str, scales: Scales, align_corners: bool, antialias: bool
) -> list[tuple[int, int, Method]]:
    """Return axis, new length and method for each axis that changes."""
    return [
        (axis, new, Method(kind, align_corners, antialias, scale))
        for axis, (n, new, scale) in enumerate(zip(lengths, sizes, scales, strict=True), 2)
        if n != new or (scale not in (None, 1.0) and not align_corners)
    ]


def _check_pixels(shape: Sequence[int], sizes: Sequence[int]) -> None:
    """Raise RuntimeError, as PyTorch does, for images without pixels or channels. A batch without images is valid."""
    if not all(n > 0 for n in (*shape[2:], *sizes)):
        found = f"input {tuple(shape[2:])} and output {tuple(sizes)}"
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got {found}")
    if not shape[1]:
        raise RuntimeError(f"Non-empty {len(shape)}D data tensor expected but got a tensor with sizes {list(shape)}")


def _resized(
    x: Tensor, sizes: Sequence[int], kind: str, scales: Scales, align: bool = False, smooth: bool = False
) -> Any:
    steps = _steps(x.shape[2:], sizes, kind, scales, align, smooth)
    if not steps or not x.size:
        return F["copy"](x) if not steps else F["full"]((*x.shape[:2], *sizes), 0, x.dtype, device=x.device)
    if x.dtype.is_floating_point:
        return resampled(x, steps)
    if kind.startswith("nearest"):
        for axis, n, method in steps:
            x = F["take"](x, F["resample_starts"](method, x.shape[axis], n, False, device=x.device), axis)
        return x
    limits = dtypes.iinfo(x.dtype)
    rounded = F["clip"](F["round"](resampled(cast(x, dtypes.float32), steps)), limits.min, limits.max)
    return cast(rounded, x.dtype)


def _resized_back(
    grad: Tensor,
    sizes: Sequence[int],
    shape: Sequence[int],
    kind: str,
    scales: Scales,
    align: bool = False,
    smooth: bool = False,
) -> Any:
    """Compute the transpose of a resizing from `shape` to `sizes`."""
    lengths = shape[2:]
    steps = _steps(lengths, sizes, kind, scales, align, smooth)
    if not steps or not grad.size:
        return F["copy"](grad) if not steps else F["full"](tuple(shape), 0, grad.dtype, device=grad.device)
    if [axis for axis, _, _ in steps] == [grad.ndim - 2, grad.ndim - 1]:
        return F["resample_planes"](grad, tuple(lengths[-2:]), tuple(method for _, _, method in steps), True)
    wide = cast(grad, dtypes.float32) if grad.dtype.itemsize < 4 else grad
    for axis, _, method in steps:
        wide = F["resample"](wide, axis, lengths[axis - 2], method, True)
    return cast(wide, grad.dtype)


def _declare(name: str, kind: str, axes: int, align: bool, smooth: bool = False) -> None:
    """Declare a resizing and its gradient; `align` is True if ATen's op has an argument `align_corners`."""

    def split(options: Sequence[Any]) -> tuple[Scales, bool]:
        rest = list(options)
        aligned = bool(rest.pop(0)) if align else False
        return [*rest, *(None,) * (axes - len(rest))], aligned

    @aten(name, keeps_format=True)
    def forward(x: Tensor, sizes: Sequence[int], *options: Any) -> Any:
        _check_pixels(x.shape, sizes)
        scales, aligned = split(options)
        return _resized(x, sizes, kind, scales, aligned, smooth)

    @aten(f"{name}_backward", keeps_format=True)
    def backward(grad: Tensor, sizes: Sequence[int], shape: Sequence[int], *options: Any) -> Any:
        scales, aligned = split(options)
        return _resized_back(grad, sizes, shape, kind, scales, aligned, smooth)


for _axes in (1, 2, 3):
    _declare(f"upsample_nearest{_axes}d", "nearest", _axes, False)
    _declare(f"_upsample_nearest_exact{_axes}d", "nearest-exact", _axes, False)
_declare("upsample_linear1d", "linear", 1, True)
_declare("upsample_bilinear2d", "linear", 2, True)
_declare("upsample_trilinear3d", "linear", 3, True)
_declare("upsample_bicubic2d", "cubic", 2, True)
_declare("_upsample_bilinear2d_aa", "linear", 2, True, True)
_declare("_upsample_bicubic2d_aa", "cubic", 2, True, True)


# --- grid sampling --------------------------------------------------------------------------------------------------

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _sampler(mode: int, padding: int, align_corners: bool) -> Callable[[Any, Any], Any]:
    return lambda x, grid: F["grid_sample"](x, grid, _MODES[mode], _PADDINGS[padding], align_corners)


@aten("grid_sampler_2d", "grid_sampler_3d", keeps_format=True)
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    return _sampler(mode, padding, align_corners)(x, grid)


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> Any:
    return gradients_of(_sampler(mode, padding, align_corners), (x, grid), mask, grad)
