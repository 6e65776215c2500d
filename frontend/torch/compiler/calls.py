"""Map nodes of compiled graphs to calls of table functions on Polyhal tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from polyhal.hal.device import Device
from polyhal.torch import table as _table  # noqa: F401  (fills the table)
from polyhal.torch import tensors
from polyhal.torch.compiler.functional import FUNCTIONAL
from polyhal.torch.compiler.lists import list_function
from polyhal.torch.registration import HANDLED, LIBRARY_OPS, TABLE, writes_first

if TYPE_CHECKING:
    from polyhal.torch.call_types import Keywords, Operator


class TableCall(NamedTuple):
    """Call of a table function for an overload."""

    function: Callable[..., Any]
    dropped: tuple[int, ...]
    """Positions of arguments that table functions do not take."""
    creates: bool
    """True if the overload creates tensors and takes a device."""

    def __call__(self, device: Device, args: list[Any], kwargs: Keywords) -> Any:
        """Compute the result. Raises UnsupportedArgumentsError for arguments that the function does not cover."""
        for i in reversed(self.dropped):
            del args[i : i + 1]
        named = {k: v for k, v in kwargs.items() if k not in HANDLED}
        if self.creates:
            named["device"] = device
        return self.function(*args, **named)


@functools.lru_cache(maxsize=4096)
def call_of(target: Operator) -> TableCall | None:
    """Return the call for the target of a node; None if the table has no function for it."""
    own = LIBRARY_OPS.get(target._schema.name) if isinstance(target, torch._ops.OpOverload) else None
    if own is not None:
        return TableCall(own, (), False)
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return None
    name = str(target).removeprefix("aten.")
    function = FUNCTIONAL.get(name) or list_function(name)
    if function is None:
        entry = TABLE.get(name)
        if entry is None or writes_first(target):  # graphs are functional
            return None
        function = entry.function
    arguments = target._schema.arguments
    dropped = tuple(i for i, a in enumerate(arguments) if a.name in HANDLED and not a.kwarg_only)
    return TableCall(function, dropped, any(a.name == "device" for a in arguments))


def as_argument(x: Any, device: Device) -> Any:
    """Convert a constant of a graph for table functions. Raises TypeError for a dtype that Polyhal does not have."""
    if isinstance(x, torch.dtype):
        return tensors.dtype_of(x)
    return device if isinstance(x, torch.device) else x
