"""Numbers of tensors that a program computes only from constants do not end a graph.

PyTorch's compiler ends a graph at `x.item()`. If no argument, no random number and no write reaches `x`, its number is the
same in each call, so that it is computed once, while the program is traced. An example is a count of labels that the program
puts into a tensor to add it up between processes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from polyhal.torch.compiler import dynamo
from polyhal.torch.compiler.generator_states import GeneratorStates
from polyhal.torch.device import NAME


def install() -> None:
    """Let PyTorch's compiler compute such numbers for tensors of the device. A second call is a no-op."""
    dynamo.fold_numbers(_number)


def _number(fake: torch.Tensor, computed: Callable[[], torch.Tensor]) -> bool | float | None:
    """Return the number of a tensor of constants; None for a number that has to be read in each call."""
    if fake.device.type != NAME:
        return None
    generators = GeneratorStates()
    try:
        value: bool | float = computed().item()
    except Exception:  # the program itself reports the error
        generators.restore()
        return None
    return None if generators.restore() else value
