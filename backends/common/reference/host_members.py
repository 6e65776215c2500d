"""The core members of the contract by NumPy, for devices whose memory the host can read: runtimes that compile graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from polyhal.backends.common.reference import members
from polyhal.backends.common.reference.arrays import in_range
from polyhal.backends.common.reference.functions import BINARY, REDUCE, UNARY
from polyhal.hal.capabilities import Capabilities
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY, Number

OPTIONAL = Capabilities(
    unary=frozenset(UNARY) - REQUIRED_UNARY,
    binary=frozenset(BINARY) - REQUIRED_BINARY,
    reduce=frozenset(REDUCE) - REQUIRED_REDUCE,
)
"""Capabilities of a device with `HostMembers`."""


class HostMembers(ABC):
    """Base class of backends that compute calls outside of captured steps on the host."""

    @abstractmethod
    def view(self, ref: Ref, *, changed: bool = False) -> np.ndarray:
        """Return the elements of a reference with any strides; `changed` says that the caller writes some of them."""

    def fill(self, value: Number, out: Ref) -> None:
        """Store a number in every element."""
        with np.errstate(all="ignore"):  # numbers beyond the range of half precision become infinite
            self.view(out, changed=True)[...] = in_range(value, out.dtype)

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy with a cast."""
        array = self.view(src)
        members.copy(array, self.view(out, changed=True))

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        """Compute `out = op(x)` elementwise."""
        array = self.view(x)
        members.unary(op, array, self.view(out, changed=True))

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a op b` elementwise."""
        first, second = self.view(a), self.view(b)
        members.binary(op, first, second, self.view(out, changed=True))

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a if cond else b` elementwise."""
        condition, first, second = self.view(cond), self.view(a), self.view(b)
        members.where(condition, first, second, self.view(out, changed=True))

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        """Reduce the last axis of `x`."""
        array = self.view(x)
        members.reduce(op, array, self.view(out, changed=True))

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        """Multiply the matrices of two batches."""
        first, second = self.view(a), self.view(b)
        members.matmul(first, second, self.view(out, changed=True))

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        """Copy the rows of `x` selected by `index`; zeros for indices out of range."""
        rows, array = self.view(index), self.view(x)
        members.gather(rows, array, self.view(out, changed=True))

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        """Add the rows of `src` to the rows of `out` selected by `index`; indices out of range are skipped."""
        rows, array = self.view(index), self.view(src)
        members.scatter_add(rows, array, self.view(out, changed=True))
