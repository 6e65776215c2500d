"""Micro-batches: their sizes, the split of a batch into them, and the concatenation of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal import functions as ops
from polyhal.hal.collectives.collective import divided
from polyhal.hal.errors import ShapeError, message
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor


def sizes_of(batch: int, micro_batches: int | Sequence[int]) -> list[int]:
    """Return the rows of each micro-batch: the given sizes, or sizes as equal as possible, none of them 0.

    Raises ShapeError if the given sizes do not add up to the batch.
    """
    if isinstance(micro_batches, int):
        count = min(micro_batches, batch)
        return list(divided(batch, count)) if count else []
    if sum(micro_batches) != batch:
        sizes = ", ".join(map(str, micro_batches))
        raise ShapeError(
            message(
                "Pipeline",
                f"a batch of {batch} rows",
                expected=f"{sum(micro_batches)} rows, for micro-batches of {sizes}",
            )
        )
    return list(micro_batches)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a model's arguments from one argument, a tuple of arguments, or a dictionary of keyword arguments."""
    if isinstance(inputs, dict):
        return (), inputs
    return inputs if isinstance(inputs, tuple) else (inputs,), {}


def batch_size(value: Any) -> int:
    """Return the length of the first axis of all tensors in a tree. Raises ShapeError if they differ, or if there is none."""
    rows: dict[int, tuple[int, ...]] = {}

    def note(x: Tensor | None) -> Any:
        if isinstance(x, Tensor) and x.ndim:
            rows.setdefault(x.shape[0], x.shape)
        return x

    map_tree(value, note)
    if len(rows) != 1:
        shapes = ", ".join(map(str, rows.values())) or "no tensor with axes"
        raise ShapeError(message("Pipeline", f"inputs and targets of shapes {shapes}", expected="one number of rows"))
    return next(iter(rows))


def split_rows(value: Any, sizes: Sequence[int]) -> list[Any]:
    """Return a tree for each micro-batch, with its rows of every tensor and all scalars and other objects."""
    parts = []
    start = 0
    for size in sizes:

        def rows(x: Tensor | None, start: int = start, size: int = size) -> Any:
            return x[start : start + size] if isinstance(x, Tensor) and x.ndim else x

        parts.append(map_tree(value, rows))
        start += size
    return parts


def join_rows(parts: Sequence[Tensor], join_others: Callable[[Sequence[Any]], Any] = lambda leaves: leaves[-1]) -> Any:
    """Concatenate trees by rows. `join_others` combines leaves without rows; by default the last one is the result."""
    columns: list[list[Any]] = []
    for part in parts:
        leaves: list[Any] = []
        map_tree(part, leaves.append)
        columns.append(leaves)
    joined = iter([_joined(leaves, join_others) for leaves in zip(*columns, strict=True)])
    return map_tree(parts[-1], lambda x: next(joined))


def _joined(leaves: Sequence[Tensor], join_others: Callable[[Sequence[Any]], Any]) -> Any:
    if not (isinstance(leaves[0], Tensor) and leaves[0].ndim):
        return join_others(leaves)
    return ops.concat(list(leaves), 0) if len(leaves) > 1 else leaves[0]
