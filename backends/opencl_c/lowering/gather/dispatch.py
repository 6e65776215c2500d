"""Indexing ops and the functions that lower them."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.opencl_c.lowering.gather import (
    along_axis,
    gather,
    replace_rows,
    scatter_add,
    scatter_bags,
    store_rows,
    sum_bags,
)
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    **replace_rows.LOWERINGS,
    "store_rows": store_rows.store_rows,
    "embedding": gather.embedding,
    "sum_bags": sum_bags.sum_bags,
    "scatter_bags": scatter_bags.scatter_bags,
    "scatter_rows": scatter_add.scatter_rows,
    "add_rows": scatter_add.add_rows,
    "take_along_axis": along_axis.take_along_axis,
    "scatter_along_axis": along_axis.scatter_along_axis,
}
