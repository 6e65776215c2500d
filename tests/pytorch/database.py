"""PyTorch's database of ops and sample calls (`torch.testing._internal`), which its own tests draw from."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_MEANINGLESS_KEYWORDS = frozenset({"memory_format", "layout", "pin_memory", "out", "generator"})
"""Keywords about PyTorch's memory and generators, which have no counterpart."""


@functools.cache
def op_database() -> tuple[Any, ...]:
    """All entries (`OpInfo`). The import takes half a minute and needs the package expecttest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return tuple(op_db)


def entries(only: str = "") -> Iterator[Any]:
    """The entries whose name contains `only`."""
    for entry in op_database():
        if only in full_name(entry):
            yield entry


def full_name(entry: Any) -> str:
    """Name and variant of an entry, such as `std.unbiased`."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def samples(entry: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """The sample calls of an entry in one dtype. Reproducible: the database draws from PyTorch's generator."""
    torch.manual_seed(0)
    for sample in entry.sample_inputs("cpu", dtype, requires_grad=requires_grad):
        if not _MEANINGLESS_KEYWORDS & sample.kwargs.keys():
            yield sample
