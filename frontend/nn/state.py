"""State dicts of modules and optimizers: creation, loading and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.nn.parameter import Parameter, is_uninitialized
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor, make_tensor

if TYPE_CHECKING:
    from polyhal.nn.module import Module

_EXTRA = "_extra_state"
"""Name of a module's state other than tensors in PyTorch's state dicts."""


class StateDictError(PolyhalError, RuntimeError):
    """A state dict does not fit: keys are missing or unexpected, or shapes differ. The message lists every case."""


class LoadResult(NamedTuple):
    """The keys that did not match; both empty after a strict load."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@runtime_checkable
class StateSized(Protocol):
    """A module that learns its sizes from the state that is loaded into it."""

    def resize(self, state: Mapping[str, Any], prefix: str) -> None:
        """Make the members that `state` holds, under names after `prefix`."""


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
    sized = [k for k, x in expected.items() if isinstance(x, Tensor) and not is_uninitialized(x)]
    shapes = {k: shape_at(actual, k) for k in sized if k in actual}
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
    _read(module, prefix, keep_vars, out)
    return out


def _read(module: Module, prefix: str, keep_vars: bool, out: dict[str, Any]) -> None:
    """Add the state of a module and of its submodules to `out`."""
    for hook in tuple(module._hooks.state_before.values()):
        hook(module, prefix, keep_vars)
    for name in _tensor_names(module):
        value = module.__dict__[name]
        out[prefix + name] = value if keep_vars or is_uninitialized(value) else value.detach()
    if _has_extra_state(module):
        out[prefix + _EXTRA] = module.get_extra_state()
    for name in module._modules:
        child = module.__dict__[name]
        if child is not None:
            _read(child, f"{prefix}{name}.", keep_vars, out)
    for hook in tuple(module._hooks.state_after.values()):
        hook(module, out, prefix, {})


def _tensor_names(module: Module) -> list[str]:
    names = (*module._parameters, *(n for n, persistent in module._buffers.items() if persistent))
    return [name for name in names if module.__dict__[name] is not None]


def _has_extra_state(module: Module) -> bool:
    from polyhal.nn.module import Module as Base

    return type(module).get_extra_state is not Base.get_extra_state


def load_state(module: Module, state: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Copy or, with `assign`, move `state` into a tree of modules. Raises StateDictError."""
    tree = [(f"{path}." if path else "", owner) for path, owner in module.named_modules(remove_duplicate=False)]
    noted, problems = LoadResult([], []), list[str]()
    if any(owner._hooks.load_before for _, owner in tree):
        state = dict(state)
    for start, owner in tree:
        for hook in tuple(owner._hooks.load_before.values()):
            hook(owner, state, start, {}, strict, noted.missing_keys, noted.unexpected_keys, problems)
        if isinstance(owner, StateSized):
            owner.resize(state, start)
    tensors: dict[str, tuple[Module, str]] = {}
    extra: dict[str, Module] = {}
    for start, owner in tree:
        tensors |= {start + name: (owner, name) for name in _tensor_names(owner)}
        if _has_extra_state(owner):
            extra[start + _EXTRA] = owner
    targets: dict[str, Any] = {key: owner.__dict__[name] for key, (owner, name) in tensors.items()}
    after = [hook for _, owner in reversed(tree) for hook in owner._hooks.load_after.values()]
    expected = {**targets, **dict.fromkeys(extra)}
    result = compare(type(module).__name__, expected, state, strict=strict and not after)
    result.missing_keys.extend(noted.missing_keys)
    result.unexpected_keys.extend(noted.unexpected_keys)
    if not after:
        _refuse(module, result if strict and any(noted) else LoadResult([], []), problems)
    assigned: dict[int, Tensor] = {}
    with no_grad():
        for key, (owner, name) in tensors.items():
            if key not in state or is_uninitialized(targets[key]):
                continue
            if assign:
                _assign(owner, name, state[key], assigned)
            else:
                targets[key].detach().copy_(adopt(state[key], targets[key].dtype, targets[key].device))
    for key, owner in extra.items():
        if key in state:
            owner.set_extra_state(state[key])
    if after:
        _call_after_loading(tree, result)
        _refuse(module, result if strict else LoadResult([], []), problems)
    return result


def _call_after_loading(tree: list[tuple[str, Module]], result: LoadResult) -> None:
    """Call the hooks of all modules, submodules first."""
    for _, owner in reversed(tree):
        for hook in tuple(owner._hooks.load_after.values()):
            if hook(owner, result) is not None:
                raise TypeError(
                    "a hook after load_state_dict returned a value; expected it to change the lists of keys"
                )


def _refuse(module: Module, result: LoadResult, problems: list[str]) -> None:
    """Raise StateDictError for keys that are left over and problems that hooks noted."""
    if result.missing_keys:
        problems.append("missing keys: " + ", ".join(result.missing_keys))
    if result.unexpected_keys:
        problems.append("unexpected keys: " + ", ".join(result.unexpected_keys))
    if problems:
        name = type(module).__name__
        raise StateDictError(message("load_state_dict", f"the state does not fit {name}: " + "; ".join(problems)))


def _assign(owner: Module, name: str, value: Tensor, assigned: dict[int, Tensor]) -> None:
    """Put a tensor in the place of a member. Members that were one tensor stay one: `assigned` has the new ones."""
    old = owner.__dict__[name]
    new = assigned.get(id(old))
    if new is None:
        tensor = value.detach() if isinstance(value, Tensor) else make_tensor(value, None, old.device)
        new = Parameter(tensor, old.requires_grad) if isinstance(old, Parameter) else tensor
        assigned[id(old)] = new
    owner.__dict__[name] = new
    dispatch.structure.changed()


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, array or number."""
    shape = getattr(value, "shape", None)
    return tuple(np.shape(value)) if shape is None else tuple(shape)


def adopt(value: Any, dtype: DType, device: Device) -> Tensor:
    """Convert a saved tensor or array to the dtype and device of its target.

    It is cast before it is moved, because the device may not store its own dtype.
    """
    if isinstance(value, Tensor):
        return value.detach().to(dtype).to(device)
    return make_tensor(value, dtype, device)


def shape_at(state: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the shape of an entry; the value is not read from a file for that."""
    lazy = getattr(state, "shape_of", None)
    shape = lazy(key) if lazy is not None else None
    return shape_of(state[key]) if shape is None else tuple(shape)
