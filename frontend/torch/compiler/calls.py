"""What a node of a compiled graph is on Polyhal tensors: a function of the table, with the arguments that it takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from polyhal.hal.device import Device
from polyhal.torch import table as _table  # noqa: F401  (fills the table)
from polyhal.torch import tensors
from polyhal.torch.compiler.functional import FUNCTIONAL
from polyhal.torch.compiler.lists import list_function
from polyhal.torch.registration import HANDLED, TABLE, writes_first


class TableCall(NamedTuple):
    """How an overload of ATen is called."""

    function: Callable[..., Any]
    dropped: tuple[int, ...]
    """Positions of arguments that no function of the table sees."""
    creates: bool
    """Whether it makes tensors on a device that it is told."""

    def __call__(self, device: Device, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Compute it. Raises UnsupportedArgumentsError for arguments that the function does not cover."""
        for i in reversed(self.dropped):
            del args[i : i + 1]
        named = {k: v for k, v in kwargs.items() if k not in HANDLED}
        if self.creates:
            named["device"] = device
        return self.function(*args, **named)


@functools.lru_cache(maxsize=4096)
def call_of(target: Any) -> TableCall | None:
    """How the target of a node is called; None for what has no function here."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return None
    name = str(target).removeprefix("aten.")
    function = FUNCTIONAL.get(name) or list_function(name)
    if function is None:
        entry = TABLE.get(name)
        if entry is None or writes_first(target):  # graphs do not
            return None
        function = entry.function
    arguments = target._schema.arguments
    dropped = tuple(i for i, a in enumerate(arguments) if a.name in HANDLED and not a.kwarg_only)
    return TableCall(function, dropped, any(a.name == "device" for a in arguments))


def as_argument(x: Any, device: Device) -> Any:
    """A constant of a graph as functions of the table take it. Raises TypeError for a dtype that Polyhal does not have."""
    if isinstance(x, torch.dtype):
        return tensors.dtype_of(x)
    return device if isinstance(x, torch.device) else x
