"""Kernel arguments and definitions that the kernels over rows share."""

from __future__ import annotations

from collections.abc import Mapping

from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.hal.protocol import InputSpec

Args = dict[str, Argument]
Definitions = dict[str, str | int | bool]


def tensors(operands: Mapping[str, InputSpec | None]) -> Args:
    """Bind the operands that are present; `operands` are the op's inputs and outputs in order."""
    return {name: Tensor(i) for i, (name, spec) in enumerate(operands.items()) if spec is not None}


def optional(name: str, spec: InputSpec | None) -> Definitions:
    """Return the definitions NAME, whether an operand is present, and NAME_DTYPE."""
    return {name: True, f"{name}_DTYPE": spec.dtype.name} if spec is not None else {name: False}


def itemsize(real: str) -> int:
    """Return the bytes of a statistic or sum of this C type."""
    return 8 if real == "double" else 4
