"""Tables from op name to the function that builds its native launch, one per family of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from polyhal.hal.protocol import Declined, Launch

LoweringFunction = Callable[..., Launch | Declined]
"""(runtime, inputs, outputs, params): looks at specs only, and answers with a launch or with why there is none."""


def merge(families: Iterable[ModuleType]) -> dict[str, LoweringFunction]:
    """The `LOWERINGS` of every module in one table. Raises ValueError when two of them claim one op."""
    merged: dict[str, Any] = {}
    for family in families:
        table: Mapping[str, LoweringFunction] = family.LOWERINGS
        for op, function in table.items():
            if op in merged:
                raise ValueError(f"two lowering functions claim the op {op!r}, the second in {family.__name__}")
            merged[op] = function
    return merged
