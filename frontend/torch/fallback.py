"""Ops without a kernel: run another overload, PyTorch's decomposition, or the op on the CPU."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.user_line import user_position
from polyhal.hal.core.settings import env
from polyhal.torch import out_dtypes, private, tensors
from polyhal.torch.device import NAME
from polyhal.torch.registration import TABLE
from polyhal.torch.reporting import COUNTERS

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords, Operator


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an overload that has no kernel. Raises NotImplementedError if only the CPU could and POLYHAL_FALLBACK forbids it."""
    functional = functional_form(op)
    by_parts = _decomposed if functional is None else functools.partial(into_outputs, functional=functional)
    result = by_parts(op, args, kwargs)
    return on_cpu(op, args, kwargs) if result is NotImplemented else result


def _decomposed(op: Operator, args: Arguments, kwargs: Keywords) -> Any:
    """Run PyTorch's decomposition. Return NotImplemented if there is none, or if it calls the op again."""
    rule = _decompositions().get(op)
    before = _THREAD.decomposing
    if rule is None or op in before:
        return NotImplemented
    _THREAD.decomposing = before | {op}
    try:
        result = rule(*args, **kwargs)
    except NotImplementedError:
        return NotImplemented
    finally:
        _THREAD.decomposing = before
    if result is not NotImplemented:
        COUNTERS.count_decomposed(str(op))
    return result


class _ThreadState(threading.local):
    decomposing: frozenset[Any] = frozenset()
    """Ops whose decomposition is running."""


_THREAD = _ThreadState()


@functools.lru_cache(maxsize=1)
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return private.decompositions()


@functools.lru_cache(maxsize=4096)
def functional_form(op: Operator) -> Any:
    """Return the overload without `out`, if the device has a kernel or PyTorch a decomposition for it.

    Functional overloads without either may be implemented through the `out` form.
    """
    if not any(a.is_out for a in op._schema.arguments):
        return None
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    packet = op._schema.name.split("::")[1]
    for other in private.overloads(packet):
        if other is not op and [(a.name, str(a.type)) for a in other._schema.arguments] == wanted:
            return other if _is_in_table(other) or other in _decompositions() else None
    return None


def _is_in_table(op: Operator) -> bool:
    return str(op).removeprefix("aten.") in TABLE


def into_outputs(op: Operator, args: Arguments, kwargs: Keywords, functional: Operator) -> Any:
    """Compute with the functional form and copy the results to the `out` arguments."""
    names = [a.name for a in op._schema.arguments if a.is_out]
    targets = [kwargs[n] for n in names]
    inputs = {k: v for k, v in kwargs.items() if k not in names}

    def compute(inputs: Keywords) -> Any:
        found = functional(*args, **inputs) if _is_in_table(functional) else _decomposed(functional, args, inputs)
        return found if found is NotImplemented or isinstance(found, tuple) else (found,)

    results = compute(inputs)
    if results is NotImplemented:
        return NotImplemented
    if any(target.dtype is not result.dtype for target, result in zip(targets, results, strict=True)):
        out_dtypes.refuse(op, args, kwargs, dict(zip(names, results, strict=True)))
        if out_dtypes.follows_output(op, kwargs):
            results = compute(inputs | {"dtype": targets[0].dtype})
    for target, result in zip(targets, results, strict=True):
        if not torch.can_cast(result.dtype, target.dtype):
            raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {target.dtype}")
        if target.shape != result.shape:
            tensors.resize(target, result.shape)
        target.copy_(result)
    return targets[0] if len(targets) == 1 else tuple(targets)


def on_cpu(op: Operator, args: Arguments, kwargs: Keywords) -> Any:
    """Copy the arguments to the CPU, run the op there, and copy results and written arguments back."""
    name = str(op)
    refuse_if_forbidden(name)
    dispatch.require_execution(
        name, f"it has no kernel on {NAME} and would run on the CPU, which a recorded step cannot do"
    )
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    moved = 0

    def down(x: Any) -> Any:
        nonlocal moved
        if isinstance(x, torch.Tensor) and x.device.type == NAME:
            if id(x) not in copies:
                copies[id(x)] = (x, x.detach().cpu())
                moved += x.nbytes
            return copies[id(x)][1]
        return torch.device("cpu") if isinstance(x, torch.device) and x.type == NAME else x

    host_args, host_kwargs = pytree.tree_map(down, (args, kwargs))
    out = op(*host_args, **host_kwargs)
    written = _written(op, args, kwargs)
    back = {id(copies[i][1]): copies[i][0] for i in written if i in copies}
    for i in written & copies.keys():
        device_tensor, host_tensor = copies[i]
        if device_tensor.shape != host_tensor.shape:
            tensors.resize(device_tensor, host_tensor.shape)
        device_tensor.copy_(host_tensor)
        moved += host_tensor.nbytes

    def up(x: torch.Tensor | None) -> Any:
        nonlocal moved
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) in back:
            return back[id(x)]
        moved += x.nbytes
        return tensors.wrap(tensors.upload(x))

    result = pytree.tree_map(up, out) if copies or _places(kwargs) else out
    _count(name, moved)
    return result


def note_cpu(name: str, moved: int) -> None:
    """Count an op that the caller will run on the CPU. Raises NotImplementedError if POLYHAL_FALLBACK forbids it."""
    refuse_if_forbidden(name)
    _count(name, moved)


def refuse_if_forbidden(name: str) -> None:
    """Raise NotImplementedError if POLYHAL_FALLBACK forbids ops on the CPU."""
    policy = env.fallback_policy()
    if policy in ("error", "declared"):
        fix = "POLYHAL_FALLBACK=warn runs it on the CPU"
        raise NotImplementedError(f"{name} has no kernel on {NAME}, and POLYHAL_FALLBACK is {policy}; {fix}")


def _count(name: str, moved: int) -> None:
    if COUNTERS.count_cpu(name, moved) and env.fallback_policy() == "warn":
        _warn(
            f"{name} has no kernel on {NAME} and ran on the CPU: {moved} bytes were copied there and back. "
            "polyhal.torch.report() lists such ops; POLYHAL_FALLBACK=error forbids them"
        )


def _warn(text: str) -> None:
    """Warn at the innermost line that is neither Polyhal's nor PyTorch's."""
    file, line = user_position()
    warnings.warn_explicit(text, UserWarning, file or "<unknown>", line or 1)


def _places(kwargs: Keywords) -> bool:
    """Return whether the call names the device for its result."""
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == NAME


def _written(op: Operator, args: Arguments, kwargs: Keywords) -> set[int]:
    """Return the identities of the tensors that the op writes, by its schema."""
    found = set()
    for i, a in enumerate(op._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = args[i] if not a.kwarg_only and i < len(args) else kwargs.get(a.name)
            found |= {id(x) for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)}
    return found
