"""Functions of the user's that see gradients pass, and may replace them."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.tape.ownership import share

if TYPE_CHECKING:
    from polyhal.tape.tape import GradNode
    from polyhal.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]

_numbers = itertools.count()


class AfterAccumulation(NamedTuple):
    """A function to call with a leaf once a backward pass has added to its gradient."""

    function: Callable[[Tensor], None]


def run_hooks(hooks: dict[int, Any] | None, g: Tensor) -> Tensor:
    """Pass a gradient through `hooks` in order. Returns the final gradient."""
    for hook in list(hooks.values()) if hooks else ():
        if isinstance(hook, AfterAccumulation):
            continue
        share(g)
        replaced = hook(g)
        if replaced is not None:
            g = replaced
            share(g)
    return g


def add_hook(tensor: Tensor, hook: Hook) -> Callable[[], None]:
    """Register a gradient hook on a leaf or a result. Returns the function that removes it."""
    if not tensor.requires_grad:
        raise AutogradError(
            message("register_hook", "the tensor does not require gradients", fix="call requires_grad_() first")
        )
    if tensor.node is None:
        return _add_to_leaf(tensor, hook)
    from polyhal.tape.rebase import refreshed

    refreshed(tensor)
    tensor.node.hooks = tensor.node.hooks or {}
    hooks = tensor.node.hooks.setdefault(tensor.index, {})
    number = next(_numbers)
    hooks[number] = hook

    def remove() -> None:
        hooks.pop(number, None)

    return remove


def add_accumulation_hook(tensor: Tensor, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    """Register a hook that is called with a leaf after its gradient was added. Returns the function that removes it."""
    name = "register_post_accumulate_grad_hook"
    if tensor.node is not None or not tensor.requires_grad:
        problem = "the tensor is no leaf that requires gradients"
        raise AutogradError(message(name, problem, fix="use register_hook, or call requires_grad_() first"))
    return _add_to_leaf(tensor, AfterAccumulation(hook))


def _add_to_leaf(leaf: Tensor, hook: Any) -> Callable[[], None]:
    """Add a hook of a leaf, which captured steps notice. Returns the function that removes it."""
    hooks: dict[int, Any] = leaf.hooks or {}
    leaf.hooks = hooks
    number = next(_numbers)
    hooks[number] = hook
    dispatch.structure.changed()

    def remove() -> None:
        if hooks.pop(number, None) is not None:
            dispatch.structure.changed()

    return remove


def has_gradient_hooks(leaf: Tensor) -> bool:
    """Return whether a leaf has hooks that run before its gradient is added."""
    return any(not isinstance(h, AfterAccumulation) for h in (leaf.hooks or {}).values())


def after_accumulation(leaf: Tensor) -> None:
    """Call the hooks of a leaf whose gradient is complete."""
    hooks: dict[int, Any] = leaf.hooks or {}
    for hook in list(hooks.values()):
        if isinstance(hook, AfterAccumulation):
            hook.function(leaf)


class RetainedGradient:
    """A hook that adds the gradients of a result of an op to its `grad`, while the tensor lives."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, g: Tensor) -> None:
        target = self.tensor()
        if target is not None:
            held = target.stored_grad
            target.stored_grad = g if held is None else held + g


def retain_gradient(tensor: Tensor) -> None:
    """Add the gradients that reach a result of an op to its `grad`. Leaves keep theirs anyway."""
    if not (tensor.node is None and tensor.requires_grad) and not retains_gradient(tensor):
        add_hook(tensor, RetainedGradient(tensor))


def retains_gradient(tensor: Tensor) -> bool:
    """Return whether a tensor is the result of an op and keeps its gradient."""
    return _retaining(tensor) is not None


def retaining(node: GradNode, output: int) -> list[Tensor]:
    """Return the tensors that keep the gradient of an output of a node."""
    hooks = (node.hooks or {}).get(output, {}).values()
    return [t for h in hooks if isinstance(h, RetainedGradient) and (t := h.tensor()) is not None]


def stop_retaining(tensor: Tensor) -> bool:
    """Keep the gradient of a result no longer. Returns whether it was kept."""
    number = _retaining(tensor)
    if number is not None:
        del _own_hooks(tensor)[number]
    return number is not None


def _retaining(tensor: Tensor) -> int | None:
    """Return the number of the hook that keeps the gradient of a tensor; None if there is none."""
    own = _own_hooks(tensor).items()
    return next((n for n, h in own if isinstance(h, RetainedGradient) and h.tensor() is tensor), None)


def _own_hooks(tensor: Tensor) -> dict[int, Hook]:
    """Return the hooks of a result of an op."""
    hooks = None if tensor.node is None else tensor.node.hooks
    return (hooks or {}).get(tensor.index, {})
