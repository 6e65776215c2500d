"""Functions that a module calls before and after its forward pass, and in its backward pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.tape.function import Context, Function
from polyhal.tensor import Tensor

_numbers = itertools.count()


class HookHandle:
    """Removes a hook: call it, or its `remove`."""

    __slots__ = ("_number", "_table")

    def __init__(self, table: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        self._number = next(_numbers)
        self._table = table
        if prepend:
            others = dict(table)
            table.clear()
            table[self._number] = hook
            table.update(others)
        else:
            table[self._number] = hook
        dispatch.structure.mode_changed()

    def remove(self) -> None:
        """Remove the hook. Removing it twice is harmless."""
        if self._table.pop(self._number, None) is not None:
            dispatch.structure.mode_changed()

    __call__ = remove


class ForwardHook(NamedTuple):
    """A function to call around the forward pass, and how."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class _BackwardBoundary(Function):
    """The identity of tensors, whose gradients pass through a function."""

    @staticmethod
    def forward(ctx: Context, on_gradients: Callable[[tuple[Any, ...]], tuple[Any, ...]], *tensors: Tensor) -> Any:
        ctx.on_gradients = on_gradients  # type: ignore[attr-defined]
        return tensors

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        return None, *ctx.on_gradients(grads)  # type: ignore[attr-defined]


class Hooks:
    """The hooks of one module."""

    __slots__ = (
        "after",
        "backward",
        "backward_before",
        "before",
        "load_after",
        "load_before",
        "state_after",
        "state_before",
    )

    def __init__(self) -> None:
        self.before: dict[int, ForwardHook] = {}
        self.after: dict[int, ForwardHook] = {}
        self.backward_before: dict[int, Callable[..., Any]] = {}
        self.backward: dict[int, Callable[..., Any]] = {}
        self.state_before: dict[int, Callable[..., Any]] = {}
        self.state_after: dict[int, Callable[..., Any]] = {}
        self.load_before: dict[int, Callable[..., Any]] = {}
        self.load_after: dict[int, Callable[..., Any]] = {}

    def __copy__(self) -> Hooks:
        out = Hooks()
        for name in Hooks.__slots__:
            setattr(out, name, dict(getattr(self, name)))
        return out

    def __bool__(self) -> bool:
        """Return whether calls are hooked."""
        return bool(self.before or self.after or self.backward or self.backward_before)

    @property
    def of_calls(self) -> tuple[tuple[Any, ...], ...]:
        """The functions that calls run, in order."""
        tables = self.before, self.after, self.backward, self.backward_before
        return tuple(tuple(table.values()) for table in tables)

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the forward pass of `module` with all hooks."""
        for hook in tuple(self.before.values()):
            args, kwargs = _replaced_arguments(hook, module, args, kwargs)
        boundary = _Boundary(self, module) if self.backward or self.backward_before else None
        if boundary is not None:
            args = boundary.enter(args)
        try:
            out = module.forward(*args, **kwargs)
        except BaseException:
            for hook in tuple(self.after.values()):
                if hook.always_call:
                    _call_after(hook, module, args, kwargs, None)
            raise
        for hook in tuple(self.after.values()):
            replaced = _call_after(hook, module, args, kwargs, out)
            out = out if replaced is None else replaced
        return out if boundary is None else boundary.leave(out)


def _call_after(
    hook: ForwardHook, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor | int | None
) -> Any:
    return hook.function(module, args, kwargs, out) if hook.with_kwargs else hook.function(module, args, out)


def _replaced_arguments(hook: ForwardHook, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    if hook.with_kwargs:
        replaced = hook.function(module, args, kwargs)
        if replaced is None:
            return args, kwargs
        if not (isinstance(replaced, tuple) and len(replaced) == 2):
            raise TypeError(f"a hook with keywords returned {type(replaced).__name__}; expected (args, kwargs) or None")
        return replaced
    replaced = hook.function(module, args)
    if replaced is None:
        return args, kwargs
    return (replaced if isinstance(replaced, tuple) else (replaced,)), kwargs


class _Boundary:
    """The two ends of a module in the backward pass: gradients of results come first, gradients of arguments last."""

    def __init__(self, hooks: Hooks, module: Any) -> None:
        self._hooks = hooks
        self._module = module
        self._of_results: tuple[Any, ...] = ()
        self._has_arguments = False

    def enter(self, args: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Put arguments that require gradients behind a node that reports these."""
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not places or not dispatch.thread.grad_enabled:
            return args
        self._has_arguments = True

        def on_gradients(grads: tuple[Tensor, ...]) -> tuple[Any, ...]:
            of_arguments: list[Any] = [None] * len(args)
            for place, grad in zip(places, grads, strict=True):
                of_arguments[place] = grad
            reported = self._report(tuple(of_arguments))
            return tuple(reported[i] for i in places)

        passed = _BackwardBoundary.apply(on_gradients, *(args[i] for i in places))
        out = list(args)
        for place, value in zip(places, passed, strict=True):
            out[place] = value
        return tuple(out)

    def _report(self, of_arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in tuple(self._hooks.backward.values()):
            replaced = hook(self._module, of_arguments, self._of_results)
            if replaced is not None:
                of_arguments = replaced if isinstance(replaced, tuple) else (replaced,)
        return of_arguments

    def leave(self, out: Any) -> Any:
        """Put results behind a node that notes their gradients."""
        results = out if isinstance(out, tuple) else (out,)
        places = [i for i, r in enumerate(results) if isinstance(r, Tensor) and r.requires_grad]
        if not places or not dispatch.thread.grad_enabled:
            return out

        def on_gradients(grads: tuple[Tensor, ...]) -> tuple[Any, ...]:
            of_results: list[Any] = [None] * len(results)
            for place, grad in zip(places, grads, strict=True):
                of_results[place] = grad
            noted: tuple[Any, ...] = tuple(of_results)
            for hook in tuple(self._hooks.backward_before.values()):
                replaced = hook(self._module, noted)
                if replaced is not None:
                    noted = replaced if isinstance(replaced, tuple) else (replaced,)
            self._of_results = noted
            if not self._has_arguments:
                self._report((None,))
            return tuple(noted[i] for i in places)

        passed = _BackwardBoundary.apply(on_gradients, *(results[i] for i in places))
        joined = list(results)
        for place, value in zip(places, passed, strict=True):
            joined[place] = value
        return tuple(joined) if isinstance(out, tuple) else joined[0]
