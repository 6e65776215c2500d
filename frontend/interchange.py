"""Functions on tensors as objects rather than elements: copies, capsules for other libraries, comparisons of shapes."""

from __future__ import annotations

from typing import Any

from polyhal.tensor import Tensor


def to_dlpack(tensor: Tensor) -> Any:
    """Return a capsule with a copy of the elements in host memory, which one library can take over.

    Libraries take tensors directly, too: `numpy.from_dlpack(x)`. Raises BufferError for bfloat16, which NumPy cannot export.
    """
    return tensor.__dlpack__()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape
