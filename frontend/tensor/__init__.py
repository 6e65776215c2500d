"""Tensors: their methods, indexing, updates in place, copies, and complex tensors."""

from polyhal.tensor.tensor import Tensor, as_tensor, make_tensor, wrap

__all__ = ["Tensor", "as_tensor", "make_tensor", "wrap"]
