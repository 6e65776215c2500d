"""Functions of the user's that see gradients pass, and may replace them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from polyhal.hal.errors import AutogradError, message

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]

_numbers = itertools.count()


def run_hooks(hooks: dict[int, Hook] | None, g: Tensor) -> Tensor:
    """Pass a gradient through `hooks` in order. Returns what they make of it."""
    for hook in list(hooks.values()) if hooks else ():
        replaced = hook(g)
        g = g if replaced is None else replaced
    return g


def add_hook(tensor: Tensor, hook: Hook) -> Callable[[], None]:
    """Register a gradient hook on a leaf or a result. Returns the function that removes it."""
    if not tensor.requires_grad:
        raise AutogradError(
            message("register_hook", "the tensor does not require gradients", fix="call requires_grad_() first")
        )
    if tensor.node is None:
        tensor.hooks = tensor.hooks or {}
        hooks = tensor.hooks
    else:
        tensor.node.hooks = tensor.node.hooks or {}
        hooks = tensor.node.hooks.setdefault(tensor.index, {})
    number = next(_numbers)
    hooks[number] = hook

    def remove() -> None:
        hooks.pop(number, None)

    return remove
