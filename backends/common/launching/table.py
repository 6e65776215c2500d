"""Lowering tables: from op name to the function that builds its native launch, one table per kernel family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

LoweringFunction = Callable[..., Launch | Declined]
"""`function(runtime, inputs, outputs, params)`: inspects specs only; returns a launch, or `Declined` with the reason."""


def merge(families: Iterable[ModuleType]) -> dict[str, LoweringFunction]:
    """Merge the `LOWERINGS` of all modules. Raises ValueError if two of them claim the same op."""
    merged: dict[str, Any] = {}
    for family in families:
        table: Mapping[str, LoweringFunction] = family.LOWERINGS
        for op, function in table.items():
            if op in merged:
                raise ValueError(f"two lowering functions claim the op {op!r}, the second in {family.__name__}")
            merged[op] = function
    return merged


def lower(
    table: Mapping[str, LoweringFunction],
    runtime: Any,
    op: str,
    inputs: tuple[InputSpec | None, ...],
    outputs: tuple[Spec, ...],
    params: Params,
) -> Launch | Declined:
    """Lower `op` with a backend's table. Declines ops without an entry and dtypes that the device does not store."""
    function = table.get(op)
    if function is None and op in OPS and OPS[op].expression:
        # A third-party elementwise op is a group of one.
        function = table["fused_elementwise"]
        arguments = tuple(None if s is None else i for i, s in enumerate(inputs))
        steps = ((op, arguments, tuple(params[name] for name in OPS[op].schema.params)),)
        params = {"steps": steps, "results": (len(inputs),), "reduction": None}
    if function is None:
        return Declined(f"{runtime.info.backend} has no kernel for {op}")
    missing = {s.dtype for s in (*inputs, *outputs) if isinstance(s, Spec)} - runtime.capabilities.storage
    if missing:
        return Declined(f"the device does not store {', '.join(sorted(d.name for d in missing))}")
    return function(runtime, inputs, outputs, params)
