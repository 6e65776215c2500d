"""Updates of a tensor by index, reduced to updates of the rows of a table that is a view of the tensor.

Each function that updates by index describes the table, the row numbers and the rows to combine with it. Applied, the
description makes a new tensor; in place, it touches the named rows only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal.hal.ops.indexing.add_rows import add_rows
from polyhal.hal.ops.indexing.reduce_rows import computed_in, reduce_rows
from polyhal.hal.ops.indexing.row_updates import (
    maximum_rows,
    multiply_rows,
    replace_rows,
    wrap_index,
    write_rows,
)
from polyhal.hal.ops.keywords import takes_both_spellings
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import TensorLike

_COMBINE = {"sum": add_rows, "prod": multiply_rows, "amax": maximum_rows}


class TableUpdate(NamedTuple):
    """Rows of a table combined with others, by number."""

    name: str
    """Name of the function, for messages."""
    table: Any
    """The tensor as (rows, width), a view where its layout permits one."""
    index: Any
    """Vector of row numbers. Negative ones are skipped, or count from the end if the update `wraps`."""
    rows: Any
    """Rows (n, width) to combine with the named ones."""
    reduce: str
    include_self: bool = True
    wraps: bool = False
    distinct: bool = False
    """True if no row is named twice."""

    def applied(self) -> Any:
        """Return the updated table, in new memory."""
        if self.distinct and self.reduce == "replace":
            return replace_rows(self.table, self.index, self._fitted(), True)
        return reduce_rows(self.name, self.table, self._numbers(), self.rows, self.reduce, self.include_self)

    def in_place(self) -> tuple[OpDef, tuple[Any, ...], tuple[Any, ...]] | None:
        """Return the op that updates the table in its own memory, with inputs and parameters; None if no single op does."""
        if self.reduce == "replace":
            if self.wraps:
                return write_rows.op, (self.table, self.index, self._fitted()), ()
            return replace_rows.op, (self.table, self.index, self._fitted()), (self.distinct,)
        combine = _COMBINE.get(self.reduce)
        dtype = self.table.dtype
        if combine is None or not self.include_self or dtype.is_complex or computed_in(dtype, self.reduce) is not dtype:
            return None
        return combine.op, (self.table, self._numbers(), self._fitted()), ()

    def _numbers(self) -> Any:
        return wrap_index(self.index, self.table.shape[0]) if self.wraps else self.index

    def _fitted(self) -> Any:
        return self.rows if self.rows.dtype is self.table.dtype else self.rows.cast(dtype=self.table.dtype)


Prepare = Callable[..., TableUpdate | None]
"""Function that describes the update by the arguments of a function; None if no element is named."""

UPDATES: dict[str, Prepare] = {}
"""Descriptions of the functions that update by index, by name."""


def table_update(prepare: Prepare) -> Prepare:
    """Register the description of the function with the same name without the leading underscore."""
    UPDATES[prepare.__name__.removeprefix("_")] = takes_both_spellings(prepare)
    return prepare


def updated(x: TensorLike, update: TableUpdate | None) -> Any:
    """Return `x` after an update, in new memory."""
    from polyhal.hal.ops.layout.regions import copy
    from polyhal.hal.ops.layout.views import reshape

    return copy(x) if update is None else own(reshape(update.applied(), x.shape))
