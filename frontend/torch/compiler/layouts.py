"""Layouts of arguments and results of a compiled graph: AOTAutograd relies on the layouts of its fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from polyhal.hal.core import dispatch
from polyhal.hal.layout import Ref, Spec, axis_order, contiguous, extent, is_dense
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor, wrap
from polyhal.torch import tensors
from polyhal.torch.compiler import private

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Symbols:
    """The values of symbolic sizes in one call."""

    def __init__(self, values: dict[Any, Any] | None = None) -> None:
        self.values = values or {}

    def bind(self, fake: Any, real: Any) -> None:
        """Derive the values of symbols in a traced value from the real value."""
        if real is None:  # a gradient that is not required
            return
        if isinstance(fake, torch.Tensor):
            if fake.ndim == real.ndim:
                for n, m in zip(fake.shape, real.shape, strict=True):
                    self.bind(n, m)
        elif isinstance(fake, (list, tuple)):
            for f, r in zip(fake, real, strict=True):
                self.bind(f, r)
        elif isinstance(fake, torch.SymInt):
            private.bind_symbol(fake, int(real), self.values)

    def value(self, size: Any) -> int:
        """Return the value of a size that may be symbolic. Raises KeyError for an unknown symbol."""
        return private.substituted(size, self.values) if isinstance(size, torch.SymInt) else int(size)

    def strides(self, fake: torch.Tensor) -> tuple[int, ...]:
        """Return the strides of a fake tensor as numbers."""
        return tuple(self.value(s) for s in fake.stride())


def is_storable(fake: torch.Tensor, device: Device) -> bool:
    """Return whether a device's memory holds tensors like a traced one."""
    kind = tensors.DTYPES.get(fake.dtype)
    return kind is not None and not fake.is_sparse and kind in device.capabilities.storage


def is_symbolic(fake: Any) -> bool:
    """Return whether a traced value may differ from call to call: a tensor in its sizes or strides, or a number."""
    if isinstance(fake, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*fake.shape, *fake.stride()))
    return isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)) and not isinstance(fake, bool)


def same_layout(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether strides address the same elements; strides of axes of length 1 are ignored."""
    return a == b or 0 in shape or all(n == 1 or s == t for n, s, t in zip(shape, a, b, strict=True))


def stored(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """Return a contiguous block in which these strides, from its start, address the elements of `x`."""
    shape = x.shape
    if 0 in shape:
        return x
    used = stored_once(shape, strides)
    if used != shape:
        x = FUNCTIONS["slice"](x, (0,) * x.ndim, used, (1,) * x.ndim)
    if is_dense(used, strides):
        return FUNCTIONS["contiguous"](FUNCTIONS["permute"](x, axis_order(used, strides)))  # type: ignore[no-any-return]
    _, last = extent(used, strides)
    block = FUNCTIONS["full"]((last + 1,), 0, x.dtype, device=x.device)
    return FUNCTIONS["overwrite"](block, x, used, strides, 0)[0]  # type: ignore[no-any-return]


def stored_once(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the shape with axes of stride 0 reduced to length 1."""
    return tuple(1 if s == 0 else n for n, s in zip(shape, strides, strict=True))


def moved_to(x: Tensor, spec: Spec) -> Tensor:
    """Copy a tensor to new memory in the layout of `spec`."""
    low, last = extent(spec.shape, spec.strides)
    block, whole = x.device.reserve(contiguous(spec.dtype, (last - low + 1,)))
    out = wrap(x.device, block, Ref(whole.handle, spec, -low))
    used = stored_once(spec.shape, spec.strides)
    dispatch.thread.executor.overwrite(_part(out, used), _part(x, used))
    return out


def _part(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the first elements along each axis."""
    if shape == x.shape:
        return x
    ref = x.ref
    return wrap(x.device, x.buffer, Ref(ref.handle, ref.spec._replace(shape=shape), ref.offset))
