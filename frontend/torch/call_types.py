"""Types of the arguments that PyTorch passes to kernels, modes and functions of the device module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Operator: TypeAlias = torch._ops.OpOverload
"""An overload of an op, e.g. `torch.ops.aten.add.Tensor`."""
Function: TypeAlias = Callable[..., Any]
"""A function or method of PyTorch, or of a program."""
Arguments: TypeAlias = tuple[Any, ...]
"""Positional arguments of a call: `torch.Tensor`, numbers, dtypes, devices, and lists of them, by the op's schema."""
Keywords: TypeAlias = dict[str, Any]
"""Keyword arguments of a call by name; values like `Arguments`."""
DeviceName: TypeAlias = torch.device | str | int
"""A device as functions like `torch.cuda.synchronize` accept it: an object, a name or an index."""
