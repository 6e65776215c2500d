"""Parametrizations: a parameter of a layer computed from others, which are learned instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from polyhal.nn.container import ModuleDict, ModuleList
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_CACHE: ContextVar[dict[tuple[int, str], Any] | None] = ContextVar("parametrized values", default=None)
"""Values by module and name, within `cached`."""


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized parameter once inside the block, however often it is read.

    For a layer that is called several times with the same weights, as in a recurrent model. What is assigned to a parameter
    inside the block is forgotten from the cache. Blocks may nest; the outermost one keeps the values.
    """
    if _CACHE.get() is not None:
        yield
        return
    token = _CACHE.set({})
    try:
        yield
    finally:
        _CACHE.reset(token)


def _value(module: Any, name: str) -> Any:
    """Return the value of a parametrized parameter."""
    cache = _CACHE.get()
    if cache is None:
        return module.parametrizations[name]()
    key = (id(module), name)
    if key not in cache:
        cache[key] = module.parametrizations[name]()
    return cache[key]


class ParametrizationList(ModuleList):
    """Learned tensors behind a parameter, `original` or `original0`, `original1`, ..., and the modules that compute it."""

    def __init__(self, modules: Sequence[Module], original: Tensor) -> None:
        super().__init__(modules)
        values: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    values = module.right_inverse(values)
        self.is_tensor = isinstance(values, Tensor)
        if self.is_tensor:
            self.original = Parameter(values, original.requires_grad)
        else:
            for i, value in enumerate(values):
                setattr(self, f"original{i}", Parameter(value, original.requires_grad))
        self.ntensors = 1 if self.is_tensor else len(values)

    def _originals(self) -> list[Tensor]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [self.__dict__[name] for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Set the learned tensors so that they give `value`. Raises NotImplementedError."""
        values: Any = value
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise NotImplementedError(
                        f"{type(module).__name__} has no right_inverse; the parameter cannot be set"
                    )
                values = module.right_inverse(values)
            for target, source in zip(self._originals(), [values] if self.is_tensor else values, strict=True):
                target.copy_(source)

    def forward(self) -> Any:
        first, *others = list(self)
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def _parametrized_class(base: type[Module]) -> type[Module]:
    """Return a subclass whose parametrized names are computed when they are read."""

    def write(self: Module, name: str, value: Tensor) -> None:
        table = self.__dict__.get("parametrizations")
        if table is not None and name in table:
            table[name].right_inverse(value)
            (_CACHE.get() or {}).pop((id(self), name), None)
        else:
            base.__setattr__(self, name, value)

    return type(f"Parametrized{base.__name__}", (base,), {"__setattr__": write, "_unparametrized": base})


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute the parameter `tensor_name` of `module` by `parametrization`, a module, from the tensors it is learned by.

    Parametrizations of one parameter follow each other. One with a method `right_inverse` keeps the parameter's value and
    allows assignment. In state dicts the learned tensors are `parametrizations.NAME.original`, as in PyTorch. `unsafe` is
    accepted: shape and dtype may change. Raises ValueError.
    """
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)  # type: ignore[attr-defined]
        return module
    if tensor_name not in module._parameters or module.__dict__[tensor_name] is None:
        raise ValueError(f"{type(module).__name__} has no parameter {tensor_name!r} to compute")
    original = module.__dict__[tensor_name]
    group = ParametrizationList([parametrization], original)
    if not is_parametrized(module):
        object.__setattr__(module, "__class__", _parametrized_class(type(module)))
        module.add_module("parametrizations", ModuleDict())
    delattr(module, tensor_name)
    setattr(type(module), tensor_name, property(lambda self: _value(self, tensor_name)))
    module.parametrizations[tensor_name] = group  # type: ignore[attr-defined]
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether any parameter of the module, or this one, is computed."""
    table = module.__dict__.get("parametrizations")
    return table is not None and (len(table) > 0 if tensor_name is None else tensor_name in table)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make `tensor_name` an ordinary parameter again, of its computed value, or of the learned tensor. Raises ValueError."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{tensor_name!r} of {type(module).__name__} is not parametrized")
    group = module.parametrizations[tensor_name]  # type: ignore[attr-defined]
    if leave_parametrized:
        with no_grad():
            value = group().detach()
    elif group.is_tensor:
        value = group.original
    else:
        raise ValueError("a parameter of several learned tensors has no single original; pass leave_parametrized=True")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]  # type: ignore[attr-defined]
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        object.__setattr__(module, "__class__", type(module)._unparametrized)  # type: ignore[attr-defined]
    module.register_parameter(tensor_name, Parameter(value.detach()))
    return module
