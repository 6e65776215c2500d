"""Nested state as JSON, with tensors referenced by name.

Plain values represent themselves. Types that JSON lacks are objects with one key that starts with `$`.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from polyhal.hal.errors import CorruptFileError, message
from polyhal.tensor import Tensor
from polyhal.tensor.complex_tensor import join

_DEEPEST = 200
"""Maximum levels of nesting. Python's stack needs several frames per level."""
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Encoder:
    """Converts a state to JSON data and collects its tensors by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor | np.ndarray] = {}
        self._seen: dict[tuple[Any, ...], str] = {}

    def encode(self, value: Any, path: str = "") -> Any:
        """Return JSON data for `value`. Raises TypeError, with the path, for values that cannot be saved."""
        try:
            data = self._encoded(value, path)
        except RecursionError:
            data = None
        if (data is None and value is not None) or _depth(data) > _DEEPEST:
            problem = f"the state contains itself or more than {_DEEPEST} levels of nesting"
            raise TypeError(message("save", problem, expected="a flatter state"))
        return data

    def _encoded(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": repr(float(value))}
        if isinstance(value, Tensor):
            if value.dtype.is_complex:
                return {"$complex": [self._name(value.real, f"{path}.real"), self._name(value.imag, f"{path}.imag")]}
            return {"$tensor": self._name(value, path)}
        if isinstance(value, np.ndarray):
            return {"$array": self._name(value, path)}
        if isinstance(value, np.generic):
            return self._encoded(value.item(), path)
        if isinstance(value, list):
            return [self._encoded(v, _join(path, i)) for i, v in enumerate(value)]
        if isinstance(value, tuple):
            return {"$tuple": [self._encoded(v, _join(path, i)) for i, v in enumerate(value)]}
        if isinstance(value, Mapping):
            if all(isinstance(k, str) and not k.startswith("$") for k in value):
                return {k: self._encoded(v, _join(path, k)) for k, v in value.items()}
            return {"$dict": [[self._key(k, path), self._encoded(v, _join(path, k))] for k, v in value.items()]}
        raise TypeError(
            message(
                "save",
                f"{path or 'the state'} is a {type(value).__name__}",
                expected="tensors, arrays, numbers, strings, None, lists, dicts",
            )
        )

    @staticmethod
    def _key(key: int | None, path: str) -> Any:
        if key is None or isinstance(key, (bool, int, str)):
            return key
        raise TypeError(
            message(
                "save", f"{path or 'the state'} has a {type(key).__name__} as a key", expected="strings or integers"
            )
        )

    def _name(self, value: Tensor | np.ndarray, path: str) -> str:
        """Return a unique name. Tensors that share all their memory share a name, and share memory when loaded."""
        identity = (id(value.buffer), value.ref.spec, value.ref.offset) if isinstance(value, Tensor) else (id(value),)
        if identity in self._seen:
            return self._seen[identity]
        name, count = path or "value", 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{path or 'value'}~{count}"
        self.tensors[name] = value
        self._seen[identity] = name
        return name


def _join(path: str, part: object) -> str:
    return f"{path}.{part}" if path else str(part)


class Source(Protocol):
    """A source of tensors by name."""

    def tensor(self, name: str) -> Tensor:
        """Return the tensor stored under `name`."""

    def array(self, name: str) -> np.ndarray:
        """Return the array stored under `name`."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the tensor or array stored under `name`, without reading it."""


def _depth(data: Any) -> int:
    """Return the levels of nesting of JSON data."""
    level, depth = [data], 0
    while level:
        level = [
            part for x in level for part in (x.values() if isinstance(x, dict) else x if isinstance(x, list) else ())
        ]
        depth += 1
    return depth


def check(data: Any, names: Container[str], where: object) -> None:
    """Raise CorruptFileError, with `where`, unless `decode` can convert the untrusted data."""
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise CorruptFileError(message("load", f"the state in {where} has more than {_DEEPEST} levels of nesting"))
        level = [part for x in level for part in _checked_parts(x, names, where)]


def _checked_parts(data: Any, names: Container[str], where: object) -> Iterable[Any]:
    """Return the nested parts of a list, a dictionary or a tagged object."""
    if isinstance(data, list):
        return data
    if not isinstance(data, dict):
        return ()
    ((tag, content), *others) = data.items() or [("", None)]
    if others or not isinstance(tag, str) or not tag.startswith("$"):
        return data.values()
    if tag in ("$tensor", "$array") and isinstance(content, str):
        if content not in names:
            raise CorruptFileError(message("load", f"{where} lacks the tensor {content!r}, to which the state refers"))
        return ()
    if tag == "$complex" and isinstance(content, list) and len(content) == 2:
        return [{"$tensor": name} for name in content]
    if tag == "$float" and isinstance(content, str) and content in _FLOATS:
        return ()
    if tag == "$tuple" and isinstance(content, list):
        return content
    if tag == "$dict" and isinstance(content, list) and all(map(_is_entry, content)):
        return [v for _, v in content]
    raise CorruptFileError(
        message("load", f"the state in {where} has an unknown tag {tag!r}, or invalid content for it")
    )


def _is_entry(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_key(value[0])


def _is_key(value: Any) -> bool:
    """Return whether a key is plain, or a tuple of plain keys, as other programs write them."""
    if isinstance(value, tuple):
        return all(_is_key(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def decode(data: Any, source: Source, lazy: bool = False) -> Any:
    """Convert data of `Encoder` that has passed `check` back. Dictionaries become `LazyState` if `lazy`.

    Raises CorruptFileError for damaged tensors.
    """
    if isinstance(data, list):
        return [decode(v, source, lazy) for v in data]
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((tag, content),) = data.items()
        if tag == "$tensor":
            return source.tensor(content)
        if tag == "$array":
            return source.array(content)
        if tag == "$complex":
            return join(*map(source.tensor, content))
        if tag == "$float":
            return _FLOATS[content]
        if tag == "$tuple":
            return tuple(decode(v, source, lazy) for v in content)
        if tag == "$dict":
            entries = dict((k, v) for k, v in content)  # noqa: C402  pairs come as lists
            return LazyState(entries, source) if lazy else {k: decode(v, source) for k, v in entries.items()}
    return LazyState(data, source) if lazy else {k: decode(v, source) for k, v in data.items()}


class LazyState(Mapping[Any, Any]):
    """A saved dictionary whose tensors are read from the file at each access."""

    def __init__(self, entries: Mapping[Any, Any], source: Source) -> None:
        self._entries = entries
        self._source = source

    def __getitem__(self, key: int | str) -> Any:
        return decode(self._entries[key], self._source, lazy=True)

    def shape_of(self, key: str) -> tuple[int, ...] | None:
        """Return the shape of the tensor at `key` without reading it; None for anything else."""
        data = self._entries[key]
        if not isinstance(data, dict) or len(data) != 1:
            return None
        ((tag, content),) = data.items()
        if tag == "$complex":
            return self._source.shape(content[0])
        return self._source.shape(content) if tag in ("$tensor", "$array") else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return f"LazyState({list(self._entries)})"
