"""Lists and dictionaries of parameters that register themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor


def _as_parameter(value: Tensor) -> Any:
    """Convert a tensor to a parameter; other values are returned unchanged, as in PyTorch."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{type(value).__name__} containing: [{value.dtype.name} of size {'x'.join(map(str, value.shape))}]"
    return f"Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list of parameters that are registered under their positions."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._count = 0
        self.extend(values or ())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (self.__dict__[str(i)] for i in range(self._count))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList(list(self)[index])
        return self.__dict__[str(range(self._count)[index])]

    def __setitem__(self, index: int, value: Tensor) -> None:
        setattr(self, str(range(self._count)[index]), _as_parameter(value))

    def append(self, value: Tensor) -> Self:
        """Add a parameter at the end."""
        setattr(self, str(self._count), _as_parameter(value))
        self._count += 1
        return self

    def extend(self, values: Iterable[Tensor]) -> Self:
        """Add parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters that are registered under their keys."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace parameters."""
        for name, value in dict(parameters).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        if name not in self._keys:
            raise KeyError(name)
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        setattr(self, name, _as_parameter(value))
        self._keys[name] = None

    def __delitem__(self, name: str) -> None:
        del self._keys[name]
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._keys.keys()

    def values(self) -> Iterator[Any]:
        """Iterate over the parameters."""
        return (self.__dict__[name] for name in self._keys)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and parameters."""
        return ((name, self.__dict__[name]) for name in self._keys)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the parameter under `name`, or `default`."""
        return self.__dict__[name] if name in self._keys else default

    def pop(self, name: str) -> Any:
        """Remove and return a parameter. Raises KeyError."""
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last name and parameter. Raises KeyError."""
        if not self._keys:
            raise KeyError("popitem of an empty ParameterDict")
        name = next(reversed(self._keys))
        return name, self.pop(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the parameter under `name`, which becomes `default` if there is none."""
        if name not in self._keys:
            self[name] = default
        return self.__dict__[name]

    def copy(self) -> ParameterDict:
        """Return another dictionary of the same parameters."""
        return ParameterDict(dict(self.items()))

    def __or__(self, other: Mapping[str, Any] | ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(dict(other.items()))
        return joined

    def __ior__(self, other: Mapping[str, Any] | ParameterDict) -> Self:
        self.update(dict(other.items()))
        return self

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def clear(self) -> None:
        """Remove all parameters."""
        for name in list(self._keys):
            del self[name]

    def extra_repr(self) -> str:
        return "\n".join(f"  ({name}): {_describe(value)}" for name, value in self.items())
