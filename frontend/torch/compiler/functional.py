"""Functional forms of ops that the device implements through PyTorch or on memory: views, copies, new tensors.

A compiled graph has no memory, so these ops are pure functions of Polyhal tensors, like table functions. They ignore layouts;
only `as_strided` receives the layout of its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from polyhal import random
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.torch.registration import full_name
from polyhal.torch.table.operands import F, cast, default_dtype
from polyhal.torch.table.random import normal_numbers, uniform_numbers

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor

FUNCTIONAL: dict[str, Callable[..., Any]] = {}
"""Functions by overload, as in `clone.default`."""
Function = TypeVar("Function", bound=Callable[..., Any])


def _recorded(*names: str) -> Callable[[Function], Function]:
    def declare(function: Function) -> Function:
        FUNCTIONAL.update({full_name(name): function for name in names})
        return function

    return declare


# --- views ----------------------------------------------------------------------------------------------------------


@_recorded("alias", "detach", "lift_fresh")
def same(x: Tensor) -> Any:
    """Return the tensor itself."""
    return x


@_recorded("slice.Tensor")
def slice_along(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """Return every `step`-th element of `start:end` along an axis."""
    axis = dim % x.ndim
    first, last, _ = slice(start, end, 1).indices(x.shape[axis])
    lengths = list(x.shape)
    lengths[axis] = max(0, -(-(last - first) // step))
    starts, steps = [0] * x.ndim, [1] * x.ndim
    starts[axis], steps[axis] = first, step
    return F["slice"](x, tuple(starts), tuple(lengths), tuple(steps))


@_recorded("squeeze", "squeeze.dim", "squeeze.dims")
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Any:
    """Remove axes of length 1, by default all; longer axes are ignored, as in PyTorch."""
    if dim is None:
        return F["squeeze"](x)
    axes = {d % max(x.ndim, 1) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))}
    return F["squeeze"](x, tuple(d for d in sorted(axes) if x.ndim and x.shape[d] == 1))


@_recorded("split.Tensor")
def split(x: Tensor, split_size: int, dim: int = 0) -> Any:
    """Split into consecutive parts along an axis."""
    return F["split"](x, split_size, dim)


@_recorded("split_with_sizes")
def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """Split into consecutive parts of the given sizes along an axis."""
    return F["split"](x, list(split_sizes), dim)


@_recorded("unbind.int")
def unbind(x: Tensor, dim: int = 0) -> Any:
    """Return the slices along an axis."""
    return F["unbind"](x, dim)


@_recorded("diagonal")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a diagonal of two axes as the last axis."""
    return F["diagonal"](x, offset, dim1, dim2)


@_recorded("reshape", "_reshape_alias")
def reshape(x: Tensor, shape: Sequence[int], stride: Any = None) -> Any:
    """Return the elements in another shape."""
    return F["reshape"](x, tuple(shape))


@_recorded("unfold")
def unfold(x: Tensor, dimension: int, size: int, step: int) -> Any:
    """Return sliding windows along an axis; the last axis runs within a window."""
    x = F["contiguous"](x)
    if not x.ndim:
        return F["reshape"](x, (size,))
    axis = dimension % x.ndim
    shape, strides = [*x.shape, size], [*x.ref.strides, x.ref.strides[axis]]
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return F["window"](x, tuple(shape), tuple(strides), 0)


# --- copies ---------------------------------------------------------------------------------------------------------


@_recorded("clone", "lift_fresh_copy", "contiguous")
def clone(x: Tensor) -> Any:
    """Return a copy."""
    return F["copy"](x)


@_recorded("_to_copy")
def to_copy(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return a copy in another dtype. `device` is ignored: a compiled graph runs on one device."""
    return F["copy"](x) if dtype is None or dtype is x.dtype else F["cast"](x, dtype)


@_recorded("prims.convert_element_type.default")
def convert(x: Tensor, dtype: DType) -> Any:
    """Return the elements in another dtype."""
    return cast(x, dtype)


@_recorded("prims.fma.default")
def multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Any:
    """Return `a * b + c`, rounded once in half precision."""
    return F["addcmul"](c, a, b)


@_recorded("copy")
def copied(x: Tensor, source: Tensor) -> Any:
    """Return functional `x.copy_(source)`: `source` in the shape and dtype of `x`."""
    return filled_to(cast(source, x.dtype), x.shape)


@_recorded("slice_scatter")
def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """Return `x` with a slice replaced."""
    return F["slice_scatter"](x, cast(src, x.dtype), dim, start, end, step)


@_recorded("select_scatter")
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Any:
    """Return `x` with one index along an axis replaced."""
    return F["select_scatter"](x, cast(src, x.dtype), dim, index)


@_recorded("repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Any:
    """Tile the tensor along each axis; missing axes are added in front."""
    return F["copy"](x) if not repeats else F["tile"](x, tuple(repeats))


@_recorded("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """Pad the last axes before and after; negative widths crop."""
    sides = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    starts = tuple(max(-before, 0) for before, _ in sides)
    lengths = tuple(n - max(-before, 0) - max(-after, 0) for n, (before, after) in zip(x.shape, sides, strict=True))
    inner = F["slice"](x, starts, lengths, (1,) * x.ndim)
    return F["pad"](inner, tuple((max(before, 0), max(after, 0)) for before, after in sides), value)


@_recorded("_linalg_check_errors")
def check_errors(info: Any, api_name: str, *, is_matrix: bool) -> None:
    """Let the factorization that returned `info` raise an error when it fails. In another program, its results are NaN."""
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.require_success(info)


def filled_to(x: Tensor, shape: tuple[int, ...]) -> Any:
    """Broadcast a tensor to a shape; return the tensor itself if it has the shape."""
    return x if x.shape == shape else F["broadcast_to"](x, shape)


# --- new tensors ----------------------------------------------------------------------------------------------------


@_recorded("full")
def full(size: Sequence[int], fill_value: complex, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return a tensor filled with a number."""
    return F["full"](tuple(size), fill_value, default_dtype(dtype, fill_value), device=device)


@_recorded("scalar_tensor")
def scalar_tensor(s: float, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return a 0-d tensor of a number, by default float32."""
    return F["full"]((), s, dtype or dtypes.float32, device=device)


@_recorded("empty.memory_format")
def empty(size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return an uninitialized tensor."""
    return F["empty"](tuple(size), dtype or dtypes.float32, device=device)


@_recorded("zeros")
def zeros(size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return zeros."""
    return F["full"](tuple(size), 0, dtype or dtypes.float32, device=device)


@_recorded("ones")
def ones(size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return ones."""
    return F["full"](tuple(size), 1, dtype or dtypes.float32, device=device)


@_recorded("empty_strided", "empty_permuted")
def empty_strided(
    size: Sequence[int], stride: Sequence[int], dtype: DType | None = None, device: Device | None = None
) -> Any:
    """Return an uninitialized tensor. `stride` is ignored: the layout of a result provides the strides."""
    return empty(size, dtype, device)


@_recorded("full_like")
def full_like(x: Tensor, fill_value: complex, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return a tensor of the shape of `x`, filled with a number."""
    return F["full"](x.shape, fill_value, dtype or x.dtype, device=x.device)


@_recorded("empty_like")
def empty_like(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return an uninitialized tensor of the shape of `x`."""
    return F["empty"](x.shape, dtype or x.dtype, device=x.device)


@_recorded("zeros_like")
def zeros_like(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return zeros in the shape of `x`."""
    return full_like(x, 0, dtype)


@_recorded("ones_like")
def ones_like(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return ones in the shape of `x`."""
    return full_like(x, 1, dtype)


@_recorded("new_full")
def new_full(
    x: Tensor, size: Sequence[int], fill_value: complex, dtype: DType | None = None, device: Device | None = None
) -> Any:
    """Return a tensor of the dtype of `x`, filled with a number."""
    return F["full"](tuple(size), fill_value, dtype or x.dtype, device=x.device)


@_recorded("new_empty")
def new_empty(x: Tensor, size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return an uninitialized tensor of the dtype of `x`."""
    return F["empty"](tuple(size), dtype or x.dtype, device=x.device)


@_recorded("new_zeros")
def new_zeros(x: Tensor, size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return zeros of the dtype of `x`."""
    return new_full(x, size, 0, dtype)


@_recorded("new_ones")
def new_ones(x: Tensor, size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Return ones of the dtype of `x`."""
    return new_full(x, size, 1, dtype)


@_recorded("new_empty_strided")
def new_empty_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], dtype: DType | None = None, device: Device | None = None
) -> Any:
    """Return zeros of the dtype of `x`; uninitialized elements may have any value."""
    return new_full(x, size, 0, dtype)


@_recorded("fill.Scalar", "fill.Tensor")
def fill(x: Tensor, value: Tensor | int) -> Any:
    """Return a tensor of the shape and dtype of `x`, filled with a value."""
    if hasattr(value, "ref"):
        return filled_to(cast(value, x.dtype), x.shape)
    return full_like(x, value)


# --- random numbers -------------------------------------------------------------------------------------------------


@_recorded("rand")
def rand(size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw numbers from [0, 1)."""
    return uniform_numbers(tuple(size), dtype or dtypes.float32, device)


@_recorded("randn")
def randn(size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw normal numbers of mean 0 and variance 1."""
    return normal_numbers(tuple(size), dtype or dtypes.float32, device)


@_recorded("rand_like")
def rand_like(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw numbers from [0, 1) in the shape of `x`."""
    return uniform_numbers(x.shape, dtype or x.dtype, x.device)


@_recorded("randn_like")
def randn_like(x: Tensor, dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw normal numbers of mean 0 and variance 1 in the shape of `x`."""
    return normal_numbers(x.shape, dtype or x.dtype, x.device)


@_recorded("randint.low")
def randint(low: int, high: int, size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw integers from [low, high)."""
    return random.randint(low, high, tuple(size), dtype=dtype or dtypes.int64, device=device)


@_recorded("randint")
def randint_below(high: int, size: Sequence[int], dtype: DType | None = None, device: Device | None = None) -> Any:
    """Draw integers from [0, high)."""
    return randint(0, high, size, dtype, device)
