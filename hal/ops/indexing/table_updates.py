"""Updates of a tensor by index, seen as updates of the rows of a table that is a view of it.

Each function that updates by index says which rows of which table it combines with which others. Applied, that gives a new
tensor; in place, only the rows that are named are touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal.hal.ops.indexing.reduce_rows import computed_in, reduce_rows
from polyhal.hal.ops.indexing.row_updates import (
    add_rows,
    maximum_rows,
    multiply_rows,
    replace_rows,
    wrap_index,
    write_rows,
)
from polyhal.hal.ops.keywords import takes_both_spellings
from polyhal.hal.ops.opdef import OpDef

_COMBINE = {"sum": add_rows, "prod": multiply_rows, "amax": maximum_rows}


class TableUpdate(NamedTuple):
    """Rows of a table combined with others, by number."""

    name: str
    """The function, for messages."""
    table: Any
    """The tensor as (rows, width), a view where its layout permits one."""
    index: Any
    """A vector of row numbers, of which negative ones are skipped, or count from the end if the update `wraps`."""
    rows: Any
    """(n, width)"""
    reduce: str
    include_self: bool = True
    wraps: bool = False
    distinct: bool = False
    """No row is named twice."""

    def applied(self) -> Any:
        """The updated table, in new memory."""
        if self.distinct and self.reduce == "replace":
            return replace_rows(self.table, self.index, self._fitted(), True)
        return reduce_rows(self.name, self.table, self._numbers(), self.rows, self.reduce, self.include_self)

    def in_place(self) -> tuple[OpDef, tuple[Any, ...], tuple[Any, ...]] | None:
        """The op that updates the table in its own memory, with inputs and parameters; None if no single one does."""
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
"""Takes the arguments of a function; None where there is nothing to update."""

UPDATES: dict[str, Prepare] = {}
"""How functions that update by index do it, by name."""


def table_update(prepare: Prepare) -> Prepare:
    """Register how the function of this name, without the underscore in front, updates a tensor."""
    UPDATES[prepare.__name__.removeprefix("_")] = takes_both_spellings(prepare)
    return prepare


def updated(x: Any, update: TableUpdate | None) -> Any:
    """`x` after an update, in new memory."""
    from polyhal.hal.ops.layout.regions import copy
    from polyhal.hal.ops.layout.views import reshape

    return copy(x) if update is None else reshape(update.applied(), x.shape)
