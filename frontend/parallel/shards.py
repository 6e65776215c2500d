"""Batches divided among devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from polyhal import functions as ops
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor


class Shards(NamedTuple):
    """The parts of a batch: one tensor (n_i, ...) per device, on that device; n_i may be 0."""

    tensors: tuple[Tensor, ...]


def divide(rows: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Divide `rows` in proportion to `shares`, by largest remainders. Each count is within 1 of its exact share."""
    total = sum(shares)
    exact = [rows * s / total for s in shares]
    counts = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: rows - sum(counts)]:
        counts[i] += 1
    return tuple(counts)


class Sharding:
    """The division of one call's arguments among devices."""

    def __init__(self, name: str, devices: Sequence[Device], shares: Sequence[float], arguments: Any) -> None:
        """Determine the number of rows. Raises ShapeError if arguments disagree, or if none has rows."""
        self._devices = devices
        found: list[tuple[int, ...] | int] = []
        map_tree(_sealed(arguments), lambda x: found.append(_rows(x)) if _rows(x) is not None else None)  # type: ignore[arg-type]
        divided = [f for f in found if isinstance(f, tuple)]
        whole = {f for f in found if isinstance(f, int)}
        lengths = whole | {sum(f) for f in divided}
        if len(lengths) != 1 or len(set(divided)) > 1:
            problem = f"the arguments have {sorted(lengths)} rows" if lengths else "no argument is a tensor with rows"
            raise ShapeError(
                message(name, problem, expected="tensors with one number of rows, divided in the same way")
            )
        self.rows = lengths.pop()
        """Rows of the whole batch."""
        self.counts = divided[0] if divided else divide(self.rows, shares)
        """Rows per device."""

    def part(self, arguments: Any, index: int) -> Any:
        """Return the arguments for one device: its rows of tensors and shards, everything else unchanged."""
        start, device = sum(self.counts[:index]), self._devices[index]

        def of(x: Any) -> Any:
            if isinstance(x, _Sealed):
                return x.shards.tensors[index]
            if isinstance(x, Tensor) and x.ndim:
                return ops.narrow(x, 0, start, self.counts[index]).to(device)
            return x.to(device) if isinstance(x, Tensor) else x

        return map_tree(_sealed(arguments), of)


class _Sealed:
    """Shards as one leaf of a tree of arguments."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards


def _sealed(arguments: Any) -> Any:
    if isinstance(arguments, Shards):
        return _Sealed(arguments)
    kind = type(arguments)
    if kind in (list, tuple):
        return kind(_sealed(x) for x in arguments)
    return {k: _sealed(x) for k, x in arguments.items()} if kind is dict else arguments


def _rows(x: Tensor | _Sealed) -> tuple[int, ...] | int | None:
    if isinstance(x, _Sealed):
        return tuple(t.shape[0] for t in x.shards.tensors)
    return x.shape[0] if isinstance(x, Tensor) and x.ndim else None
