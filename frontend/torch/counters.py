"""Step counters of optimizers: one tensor on the CPU for each parameter, which are read and incremented in one call for all.

PyTorch takes a call for each of them, which is a tenth of a small model's step.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from polyhal.torch import private


class StepCounters:
    """Tensors on the CPU with the arrays in their memory."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises TypeError for a dtype that NumPy does not have."""
        self._tensors = list(tensors)
        self._arrays = [x.numpy() for x in tensors]
        self._addresses = [x.data_ptr() for x in tensors]

    def are(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether these are the tensors, in the same memory."""
        own = self._tensors
        same = len(own) == len(tensors) and all(map(operator.is_, own, tensors))
        return same and [x.data_ptr() for x in own] == self._addresses

    def numbers(self) -> list[float]:
        """Return the number in each counter."""
        return [x.item() for x in self._arrays]

    def advance(self) -> None:
        """Add 1 to each counter."""
        for array in self._arrays:
            array += 1
        private.increment_versions(self._tensors)
