"""In-place replacement of rows by index; the reference functions return a new array instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.backends.common.reference.arrays import view_memory
from polyhal.hal.layout import Ref
from polyhal.hal.ops.indexing.row_updates import put_rows
from polyhal.hal.protocol import SimpleLaunch

ROW_UPDATES = frozenset({"replace_rows", "write_rows"})
"""Ops with a table, an index and rows as operands."""


def row_update(op: str) -> SimpleLaunch:
    """Return the launch of one of `ROW_UPDATES`: it copies the table, unless the result aliases it, and replaces rows."""
    wraps = op == "write_rows"

    def run(x: Ref, index: Ref, src: Ref, out: Ref) -> None:
        target, numbers = _array(out), _array(index)
        if x.handle is not out.handle or x.offset != out.offset:
            target[...] = _array(x)
        if wraps:
            numbers = np.where(numbers < 0, numbers + len(target), numbers)
        put_rows(target, numbers, _array(src))

    return SimpleLaunch(f"numpy {op}", run)


def _array(ref: Ref) -> Any:
    return view_memory(ref.spec, ref.handle, ref.offset)
