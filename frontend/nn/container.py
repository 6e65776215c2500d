"""Modules that hold other modules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, KeysView, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Self, overload

from polyhal.hal.core import dispatch
from polyhal.nn.activation import GELU, ReLU, Sigmoid, SiLU, Tanh
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


class ModuleSequence(Module):
    """Base of containers that register modules under their positions."""

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        number = len(self)
        while str(number) in self._modules:  # the names of a slice do not begin at 0
            number += 1
        self.add_module(str(number), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Insert a module before index `index`; later modules are renumbered. Raises IndexError."""
        count = len(self)
        if not -count <= index <= count:
            raise IndexError(f"index {index} for {count} modules")
        modules = list(self)
        modules.insert(index, module)
        self._replace(modules)
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove and return the module at index `index`; later modules are renumbered. Raises IndexError."""
        module = list(self)[index]
        del self[index]
        return module

    def _replace(self, modules: Iterable[Module]) -> None:
        """Hold `modules`, numbered from 0."""
        for name in list(self._modules):
            delattr(self, name)
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return (self.__dict__[name] for name in self._modules)

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[index], module)

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index]
        self._replace(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)


class Sequential(ModuleSequence):
    """Runs modules in sequence: `Sequential(a, b)`, or `Sequential({"first": a, "second": b})` to name them.

    Raises TypeError for items that are not modules.

    >>> model = polyhal.nn.Sequential(polyhal.nn.Linear(4, 8), polyhal.nn.ReLU(), polyhal.nn.Linear(8, 2))
    >>> model(polyhal.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
            return
        for i, item in enumerate(modules):
            if not isinstance(item, Module):
                raise TypeError(f"Sequential takes modules; item {i} is a {type(item).__name__}")
            self.add_module(str(i), item)

    def forward(self, input: Tensor) -> Any:
        modules, x = list(self), input
        i = 0
        while i < len(modules):
            activation = _fusable_activation(modules[i], modules[i + 1]) if i + 1 < len(modules) else None
            x = modules[i](x) if activation is None else modules[i](x, activation)
            i += 1 if activation is None else 2
        return x

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return Sequential({name: self.__dict__[name] for name in list(self._modules)[index]})
        module: Module = list(self)[index]
        return module

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        """Return a sequence that applies its modules several times with shared parameters."""
        return Sequential(*list(self) * times)

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Self:
        self._replace(list(self) * times)
        return self


_FUSABLE: dict[type[Module], str] = {ReLU: "relu", SiLU: "silu", Sigmoid: "sigmoid", Tanh: "tanh"}


def _fusable_activation(module: Module, after: Module) -> str | None:
    """Return the name of the activation `after` if it can be fused into the linear layer `module`: no hook is called between.

    Not if ops are fused later: a captured step attributes each op to its module.
    """
    if type(module) is not Linear or dispatch.thread.executor.fuses_later:
        return None
    if module._hooks or after._hooks:
        return None
    if type(after) is GELU:
        return "gelu_tanh" if after.approximate == "tanh" else "gelu"
    return _FUSABLE.get(type(after))


class ModuleList(ModuleSequence):
    """A list of modules that are registered under their positions."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Any:
        modules = list(self)
        return ModuleList(modules[index]) if isinstance(index, slice) else modules[index]

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    @recursive_repr("(contains itself)")
    def __repr__(self) -> str:
        lines, first = [], 0
        for text, group in itertools.groupby(repr(module) for module in self):
            count = len(list(group))
            last = first + count - 1
            line = f"({first}): {text}" if count == 1 else f"({first}-{last}): {count} x {text}"
            lines.append(line.replace("\n", "\n  "))
            first = last + 1
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{type(self).__name__}()"


class ModuleDict(Module):
    """A dictionary of modules that are registered under their keys."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        for name, module in dict(modules).items():
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        if name not in self._modules:
            raise KeyError(name)
        return self.__dict__[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        if name not in self._modules:
            raise KeyError(name)
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def pop(self, name: str) -> Any:
        """Remove and return a module. Raises KeyError."""
        module = self[name]
        del self[name]
        return module

    def clear(self) -> None:
        """Remove all modules."""
        for name in list(self._modules):
            del self[name]

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._modules.keys()

    def values(self) -> Iterator[Any]:
        """Iterate over the modules."""
        return (self.__dict__[name] for name in self._modules)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and modules."""
        return ((name, self.__dict__[name]) for name in self._modules)


class Identity(Module):
    """Returns its input; arguments of the constructor are ignored, so that it can replace any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor | int) -> Any:
        return input


class Flatten(Module):
    """Merges axes `start_dim` to `end_dim` (inclusive) into one; by default all but the batch.

    >>> polyhal.nn.Flatten()(polyhal.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Any:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits axis `dim` into axes of the lengths `unflattened_size`; one of them may be -1."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Any) -> Any:
        dim = self.dim % input.ndim
        return input.reshape((*input.shape[:dim], *self.unflattened_size, *input.shape[dim + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
