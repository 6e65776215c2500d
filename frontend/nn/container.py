"""Modules that hold other modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, overload

from polyhal.hal import dispatch
from polyhal.nn.activation import GELU, ReLU, Sigmoid, SiLU, Tanh
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module


class Sequential(Module):
    """Runs modules in sequence: `Sequential(a, b)`, or `Sequential({"first": a, "second": b})` to name them."""

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

    def forward(self, input: Any) -> Any:
        modules, x = list(self), input
        i = 0
        while i < len(modules):
            activation = _fusable_activation(modules[i], modules[i + 1]) if i + 1 < len(modules) else None
            x = modules[i](x) if activation is None else modules[i](x, activation)
            i += 1 if activation is None else 2
        return x

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return (self.__dict__[name] for name in self._modules)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        modules = list(self)
        return Sequential(*modules[index]) if isinstance(index, slice) else modules[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[index], module)


_FUSABLE: dict[type[Module], str] = {ReLU: "relu", SiLU: "silu", Sigmoid: "sigmoid", Tanh: "tanh"}


def _fusable_activation(module: Module, after: Module) -> str | None:
    """The name of the activation `after` if it can be fused into the linear layer `module`: no hook sees what is in between.

    Not if ops are fused later: a captured step attributes each op to its module.
    """
    if type(module) is not Linear or dispatch.thread.executor.fuses_later:
        return None
    if module._hooks or after._hooks:
        return None
    if type(after) is GELU:
        return "gelu_tanh" if after.approximate == "tanh" else "gelu"
    return _FUSABLE.get(type(after))


class ModuleList(Module):
    """A list of modules that are registered under their positions."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return (self.__dict__[name] for name in self._modules)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Any:
        modules = list(self)
        return ModuleList(modules[index]) if isinstance(index, slice) else modules[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(str(range(len(self))[index]), module)


class ModuleDict(Module):
    """A dictionary of modules that are registered under their keys."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add or replace modules."""
        for name, module in modules.items():
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

    def keys(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._modules)

    def values(self) -> Iterator[Any]:
        """Iterate over the modules."""
        return (self.__dict__[name] for name in self._modules)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and modules."""
        return ((name, self.__dict__[name]) for name in self._modules)


class Identity(Module):
    """Returns its input; arguments of the constructor are ignored, so that it can stand for any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Flatten(Module):
    """Merges axes `start_dim` to `end_dim` (inclusive) into one; by default all but the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Any) -> Any:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits axis `dim` into axes of the lengths `unflattened_size`, of which one may be -1."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Any) -> Any:
        dim = self.dim % input.ndim
        return input.reshape((*input.shape[:dim], *self.unflattened_size, *input.shape[dim + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
