"""Complex tensors: a pair of real ones that looks like one tensor.

Ops on them are ops on the parts (hal/ops/complex_numbers), so that the tape, captured steps and devices only have real tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, component, promote, to_complex
from polyhal.hal.errors import AutogradError, UnsupportedDTypeError, message
from polyhal.hal.layout import Ref, broadcast_shapes, contiguous
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_broadcast_to, _cast, _full = (FUNCTIONS[n] for n in ("broadcast_to", "cast", "full"))
_PARTS = (dtypes.float32, dtypes.float64)


class ComplexTensor(Tensor):
    """A tensor of complex64 or complex128: `real` and `imag` are tensors of float32 or float64, and views of it.

    `polyhal.tensor`, `polyhal.complex`, `polyhal.fft` and others make such tensors.
    """

    __slots__ = ("_imag", "_real")

    _imag: Tensor
    _real: Tensor

    @property
    def real(self) -> Tensor:
        """The real part."""
        return self._real

    @property
    def imag(self) -> Tensor:
        """The imaginary part."""
        return self._imag

    @property
    def ref(self) -> Ref:  # type: ignore[override]
        """A reference from which only dtype and shape can be read: a complex tensor has no memory of its own."""
        spec = self._real.ref.spec
        return Ref(None, contiguous(to_complex(spec.dtype), spec.shape), 0)

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances between neighbours along each axis, in elements of the real part."""
        return self._real.strides

    @property
    def is_contiguous(self) -> bool:
        """True if the elements of each part are adjacent in row-major order."""
        return self._real.is_contiguous and self._imag.is_contiguous

    def __repr__(self) -> str:
        from polyhal.printing import render

        return render(self)

    # --- values on the host -----------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """Copy the elements to a new NumPy array. Waits for the device."""
        out = np.empty(self.shape, self.dtype.numpy)
        out.real, out.imag = self._real.numpy(), self._imag.numpy()
        return out

    # --- copies -----------------------------------------------------------------------------------------------------

    def _share(self, source: Tensor) -> None:
        """Become a leaf in the memory of `source`, which may be real."""
        self._pair(source.real.detach(), source.imag.detach())

    def _pair(self, re: Tensor, im: Tensor) -> None:
        """Consist of two parts of one shape, dtype and device."""
        self.device = re.device
        self._real = re
        self._imag = im
        self.index = 0
        self.hooks = None

    def __copy__(self) -> Self:
        """Return another tensor over the same memory, at the same position on the tape."""
        out = _new(type(self))
        out._pair(copy.copy(self._real), copy.copy(self._imag))
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy a leaf to new memory. Raises AutogradError for results of ops."""
        out = _new(type(self))
        out._pair(copy.deepcopy(self._real, memo), copy.deepcopy(self._imag, memo))
        if not self.copies_grad:
            out.grad = None
        memo[id(self)] = out
        return out

    def detach(self) -> Tensor:
        """Return a tensor over the same memory that is not on the tape."""
        return paired(self._real.detach(), self._imag.detach())

    # --- autograd ---------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """True if a part requires gradients."""
        return self._real.requires_grad or self._imag.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._real.requires_grad = self._imag.requires_grad = value

    @property
    def node(self) -> Any:  # type: ignore[override]
        """Node that created a part, if it is on the tape."""
        return self._real.node or self._imag.node

    @property
    def is_leaf(self) -> bool:
        """True if no op on the tape made the tensor."""
        return self._real.is_leaf and self._imag.is_leaf

    @property
    def grad(self) -> Tensor | None:
        """The sum of the gradients of all backward passes, `dL/dreal + 1j * dL/dimag`; None if there is none."""
        re, im = self._real.grad, self._imag.grad
        if re is None and im is None:
            return None
        return join(_zeros_like(self._real) if re is None else re, _zeros_like(self._imag) if im is None else im)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._real.grad, self._imag.grad = (None, None) if value is None else (value.real, value.imag)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switch gradients for this leaf on or off. Raises AutogradError for results of ops."""
        if not self.is_leaf:
            problem = "requires_grad can be set on leaves only, and this is the result of an op"
            raise AutogradError(message(None, problem, fix="use .detach() first"))
        if self.requires_grad is not requires_grad:
            # Of the parts' own, so that tensors that they were made of stay as they are.
            self._real, self._imag = self._real.detach(), self._imag.detach()
        self._real.requires_grad_(requires_grad)
        self._imag.requires_grad_(requires_grad)
        return self

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Raise AutogradError: each part has hooks of its own."""
        raise AutogradError(message("register_hook", "the tensor is complex", fix="use those of .real and .imag"))


_new = ComplexTensor.__new__


def paired(re: Tensor, im: Tensor) -> Tensor:
    """Make a complex tensor of two parts of one shape, dtype and device."""
    out = _new(ComplexTensor)
    out._pair(re, im)
    return out


def join(re: Any, im: Any) -> Tensor:
    """Make a complex tensor of two parts, broadcast to one shape and cast to one dtype; one of them may be a number.

    Raises UnsupportedDTypeError for half-precision parts.
    """
    parts = [x for x in (re, im) if isinstance(x, Tensor)]
    dtype = _common_dtype([x.dtype for x in parts])
    shape = parts[0].shape if len(parts) < 2 else broadcast_shapes(re.shape, im.shape)

    def part(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return _full(shape, x, dtype, device=parts[0].device)
        if x.dtype is not dtype:
            x = _cast(x, dtype)
        return x if x.shape == shape else _broadcast_to(x, shape)

    return paired(part(re), part(im))


def real_parts(x: Tensor) -> tuple[Tensor, ...]:
    """Return the real tensors that a tensor consists of: itself, or the two parts of a complex one."""
    return (x.real, x.imag) if isinstance(x, ComplexTensor) else (x,)


def real_parts_of(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the tensors, with the two parts of each complex one in its place."""
    if not any(isinstance(x, ComplexTensor) for x in tensors):
        return tensors
    return [part for x in tensors for part in real_parts(x)]


def _common_dtype(parts: list[DType]) -> DType:
    dtype = parts[0] if len(parts) < 2 else promote(*parts)
    dtype = dtype if dtype.kind == "float" else dtypes.DEFAULT_FLOAT
    if dtype not in _PARTS:
        raise UnsupportedDTypeError(
            message(None, f"complex numbers of {dtype.name}", expected="float32 or float64", fix="cast with .to(dtype)")
        )
    return dtype


def _zeros_like(x: Tensor) -> Tensor:
    return _full(x.shape, 0, x.dtype, device=x.device)  # type: ignore[no-any-return]


def uploaded(array: np.ndarray, dtype: DType, device: Device) -> Tensor:
    """Make a complex tensor from a copy of a NumPy array of that dtype. Raises UnsupportedDTypeError."""
    part = component(dtype)
    return paired(*(Tensor(x.copy(), dtype=part, device=device) for x in (array.real, array.imag)))
