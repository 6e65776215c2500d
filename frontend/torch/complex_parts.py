"""Complex numbers: PyTorch interleaves real and imaginary parts in memory, Polyhal has pairs of real tensors."""

from __future__ import annotations

from typing import Any

import torch

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous, contiguous_strides
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.tensor import wrap as polyhal_tensor
from polyhal.tensor.complex_tensor import ComplexTensor, paired

PARTS: dict[torch.dtype, DType] = {torch.complex64: dtypes.float32, torch.complex128: dtypes.float64}
"""Dtype of the real and imaginary parts."""
COMPLEX: dict[torch.dtype, DType] = {torch.complex64: dtypes.complex64, torch.complex128: dtypes.complex128}


def view(root: Tensor, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """Return a complex view of memory; strides and offset count complex elements, as in PyTorch."""
    doubled = tuple(2 * s for s in strides)

    def part(at: int) -> Tensor:
        spec = Spec(PARTS[dtype], shape, doubled, at % ALIGNMENT == 0)
        out = polyhal_tensor(root.device, root.buffer, Ref(root.ref.handle, spec, at))
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.track(out, root)
        return out

    return paired(part(2 * offset), part(2 * offset + 1))


def memory_of(x: ComplexTensor) -> Tensor:
    """Return the parts of `x` interleaved along a new last axis, as a view if memory has this layout."""
    real, imag = x.real.ref, x.imag.ref
    if x.real.buffer is x.imag.buffer and (real.offset, imag.offset) == (0, 1):
        doubled = tuple(2 * s for s in contiguous_strides(x.shape))
        if real.spec.strides == imag.spec.strides == doubled:
            whole = contiguous(x.real.dtype, (*x.shape, 2))
            return polyhal_tensor(x.device, x.real.buffer, Ref(real.handle, whole, 0))
    out: Tensor = FUNCTIONS["stack"]([x.real, x.imag], -1)
    return out


def overwrite(place: Tensor, value: Any) -> None:
    """Replace the elements of a tensor by a number or a tensor of its shape, each real or complex."""
    real, imag = (value.real, value.imag) if dispatch.is_complex(value) else (value, 0)
    if not isinstance(place, ComplexTensor):
        dispatch.thread.executor.overwrite(place, real)
        return
    dispatch.thread.executor.overwrite(place.real, real)
    dispatch.thread.executor.overwrite(place.imag, imag)


def buffers(x: Tensor) -> tuple[Any, ...]:
    """Return the buffers of a tensor, or of its parts."""
    return (x.real.buffer, x.imag.buffer) if isinstance(x, ComplexTensor) else (x.buffer,)
