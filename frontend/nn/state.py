"""State dicts of modules: made, loaded, and checked against what a module or an optimizer expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.autograd import no_grad
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor

if TYPE_CHECKING:
    from polyhal.nn.module import Module

_EXTRA = "_extra_state"
"""The name of what a module keeps beside tensors, in PyTorch's state dicts."""


class StateDictError(PolyhalError, RuntimeError):
    """A state dict does not fit: keys are missing or unexpected, or shapes differ. The message lists every case."""


class LoadResult(NamedTuple):
    """The keys that did not match; both empty after a strict load."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def compare(name: str, expected: Mapping[str, Any], actual: Mapping[str, Any], *, strict: bool) -> LoadResult:
    """Check keys and shapes of `actual` against `expected`.

    Missing and unexpected keys are errors only if `strict`, other shapes always. Raises StateDictError.
    """
    missing = [k for k in expected if k not in actual]
    unexpected = [k for k in actual if k not in expected]
    problems = []
    if strict and missing:
        problems.append("missing keys: " + ", ".join(missing))
    if strict and unexpected:
        problems.append("unexpected keys: " + ", ".join(unexpected))
    shapes = {k: _shape_at(actual, k) for k in expected if k in actual and isinstance(expected[k], Tensor)}
    wrong = [f"{k} is {shape}, here {expected[k].shape}" for k, shape in shapes.items() if shape != expected[k].shape]
    if wrong:
        problems.append("shapes differ: " + ", ".join(wrong))
    if problems:
        fix = "" if wrong else "pass strict=False to load what matches"
        raise StateDictError(
            message("load_state_dict", f"the state does not fit {name}: " + "; ".join(problems), fix=fix)
        )
    return LoadResult(missing, unexpected)


def state_of(module: Module, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """Parameters, persistent buffers and extra state of a tree of modules, by dotted name after `prefix`."""
    out: dict[str, Any] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        start = f"{prefix}{path}." if path else prefix
        for name in _tensor_names(owner):
            value = owner.__dict__[name]
            out[start + name] = value if keep_vars else value.detach()
        if _has_extra_state(owner):
            out[start + _EXTRA] = owner.get_extra_state()
    return out


def _tensor_names(module: Module) -> list[str]:
    names = (*module._parameters, *(n for n, persistent in module._buffers.items() if persistent))
    return [name for name in names if module.__dict__[name] is not None]


def _has_extra_state(module: Module) -> bool:
    from polyhal.nn.module import Module as Base

    return type(module).get_extra_state is not Base.get_extra_state


def load_state(module: Module, state: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Copy or, with `assign`, move `state` into a tree of modules. Raises StateDictError."""
    tensors: dict[str, tuple[Module, str]] = {}
    extra: dict[str, Module] = {}
    for path, owner in module.named_modules(remove_duplicate=False):
        start = f"{path}." if path else ""
        tensors |= {start + name: (owner, name) for name in _tensor_names(owner)}
        if _has_extra_state(owner):
            extra[start + _EXTRA] = owner
    targets: dict[str, Any] = {key: owner.__dict__[name] for key, (owner, name) in tensors.items()}
    result = compare(type(module).__name__, {**targets, **dict.fromkeys(extra)}, state, strict=strict)
    assigned: dict[int, Tensor] = {}
    with no_grad():
        for key, (owner, name) in tensors.items():
            if key in state and assign:
                _assign(owner, name, state[key], assigned)
            elif key in state:
                targets[key].detach().copy_(adopt(state[key], targets[key].dtype, targets[key].device))
    for key, owner in extra.items():
        if key in state:
            owner.set_extra_state(state[key])
    return result


def _assign(owner: Module, name: str, value: Any, assigned: dict[int, Tensor]) -> None:
    """Put a tensor in the place of a member. Members that were one tensor stay one: `assigned` has the new ones."""
    old = owner.__dict__[name]
    new = assigned.get(id(old))
    if new is None:
        tensor = value.detach() if isinstance(value, Tensor) else Tensor(value, device=old.device)
        new = Parameter(tensor, old.requires_grad) if isinstance(old, Parameter) else tensor
        assigned[id(old)] = new
    owner.__dict__[name] = new
    dispatch.structure.changed()


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor, array or number."""
    shape = getattr(value, "shape", None)
    return tuple(np.shape(value)) if shape is None else tuple(shape)


def adopt(value: Any, dtype: DType, device: Device) -> Tensor:
    """Convert a saved tensor or array to the dtype and device of its target.

    It is cast before it is moved, because the device may not store its own dtype.
    """
    if isinstance(value, Tensor):
        return value.detach().to(dtype).to(device)
    return Tensor(value, dtype=dtype, device=device)


def _shape_at(state: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The shape of an entry; the value is not read from a file for that."""
    lazy = getattr(state, "shape_of", None)
    shape = lazy(key) if lazy is not None else None
    return shape_of(state[key]) if shape is None else tuple(shape)
