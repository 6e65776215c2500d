"""Globals that a pickle of data may use, with replacements: Python's containers and NumPy's arrays and numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.serialize.readers.pickles import PickleConstructor, hashable, short

_MOST_EMPTY = 1000
_PLAIN = re.compile(r"[<>|=]?([biufO?SU])(\d{0,9})")


class DTypeStandIn:
    """A NumPy dtype in a pickle, which sets its byte order after construction."""

    __slots__ = ("dtype",)

    def __init__(self, name: str, align: bool = False, copy: bool = True) -> None:
        if not isinstance(name, str) or not _PLAIN.fullmatch(name):
            raise ValueError(f"dtype {short(name)} is not a dtype of numbers or text")
        self.dtype: np.dtype[Any] = np.dtype(name)

    def set_state(self, state: Any) -> None:
        """Set the byte order, the second element of the state."""
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "=") or state[4]:
            raise ValueError("a dtype with fields")
        self.dtype = self.dtype.newbyteorder(state[1])


class ArrayStandIn:
    """A NumPy array in a pickle."""

    __slots__ = ("value",)

    def __init__(self, *_: Any) -> None:
        self.value: Any = np.zeros(0)

    def set_state(self, state: Any) -> None:
        """Set shape, dtype, order and elements. Arrays of objects become nested lists, or their only element."""
        _, shape, kind, fortran, data = state
        self.value = array_value(data, kind, shape, "F" if fortran else "C")


def array_value(data: Any, kind: Any, shape: Sequence[int], order: Any = "C") -> Any:
    """Return an array from bytes in a pickle; for objects nested lists, or the only element."""
    if not isinstance(kind, DTypeStandIn) or not isinstance(shape, tuple) or order not in ("C", "F"):
        raise ValueError("an array without shape or dtype")
    if kind.dtype.kind == "O":
        if not isinstance(data, list):
            raise ValueError("an array of objects whose data is not a list")
        return nested(data, shape, order)
    raw = data.encode("latin-1") if isinstance(data, str) else data
    if not isinstance(raw, (bytes, bytearray)):
        raise ValueError("an array without bytes")
    array = np.frombuffer(bytes(raw), kind.dtype).reshape(shape, order=order)
    return array.astype(array.dtype.newbyteorder("="))


def nested(items: list[Any], shape: tuple[int, ...], order: str = "C") -> Any:
    """Return lists of the given shape, or the only item for shape ()."""
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return listed(array.reshape(shape, order=order))  # type: ignore[call-overload]


def listed(array: np.ndarray) -> Any:
    """Return an array as nested lists. Raises ValueError for many empty lists, which need no bytes in the file."""
    if not array.size and np.prod([max(n, 1) for n in array.shape], dtype=object) > _MOST_EMPTY:
        raise ValueError(f"an empty array of shape {array.shape}")
    return array.tolist()


def _scalar(kind: DTypeStandIn, data: bytes | None = None) -> Any:
    array = array_value(data, kind, ())
    return array.item() if isinstance(array, np.ndarray) else array


def _buffer_array(data: Any, kind: Any, shape: Any, order: Any) -> Any:
    return array_value(data, kind, shape, order)


def _mapping(items: Any = ()) -> dict[Any, Any]:
    entries = list(items.items()) if isinstance(items, dict) else [tuple(pair) for pair in _checked(items)]
    return dict(zip(hashable([k for k, _ in entries]), [v for _, v in entries], strict=True))


def _default_mapping(factory: PickleConstructor | None = None, items: tuple[int, ...] = ()) -> dict[Any, Any]:
    return _mapping(items)


def _listed(items: Any = ()) -> list[Any]:
    return list(_checked(items))


def _set_of(items: Any = ()) -> set[Any]:
    return set(hashable(_checked(items)))


def _frozen(items: Any = ()) -> frozenset[Any]:
    return frozenset(hashable(_checked(items)))


def _tuple_of(items: Any = ()) -> tuple[Any, ...]:
    return tuple(_checked(items))


def _checked(items: Any) -> Any:
    """Return a container. Raises ValueError for other types: Python would allocate as many elements as a number says."""
    if not isinstance(items, (list, tuple, dict, set, frozenset)):
        raise ValueError(f"a container of a {type(items).__name__}")
    return items


def _encoded(text: str, encoding: str = "latin1") -> bytes:
    """Return the bytes that protocols before 3 write as text."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("bytes in an unknown encoding")
    return text.encode("latin-1")


def _byte_array(data: Any = b"", encoding: Any = "latin1") -> bytes:
    return _encoded(data, encoding) if isinstance(data, str) else bytes(_bytes_only(data))


def _bytes_only(data: Any) -> bytes:
    if not isinstance(data, (bytes, bytearray)):
        raise ValueError("bytes from another type")
    return bytes(data)


def _complex(real: float, imag: float = 0.0) -> complex:
    return complex(float(real), float(imag))


_PYTHON: dict[str, Any] = {
    "collections OrderedDict": _mapping,
    "collections Counter": _mapping,
    "collections defaultdict": _default_mapping,
    "builtins dict": _mapping,
    "builtins list": _listed,
    "builtins set": _set_of,
    "builtins frozenset": _frozen,
    "builtins tuple": _tuple_of,
    "builtins bytearray": _byte_array,
    "builtins complex": _complex,
    "_codecs encode": _encoded,
}

_NUMPY: dict[str, Any] = {
    "numpy dtype": DTypeStandIn,
    **{f"numpy.{core}.multiarray scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray _reconstruct": ArrayStandIn for core in ("core", "_core")},
    **{f"numpy.{core}.numeric _frombuffer": _buffer_array for core in ("core", "_core")},
}

DATA_NAMES: dict[str, Any] = {
    **{name: PickleConstructor(make) for name, make in (_PYTHON | _NUMPY).items()},
    **{name.replace("builtins", "__builtin__"): PickleConstructor(make) for name, make in _PYTHON.items()},
    **{f"builtins {kind}": f"builtins.{kind}" for kind in ("int", "float", "str", "bool", "bytes")},
    "numpy ndarray": "numpy.ndarray",
}
"""Replacements by "module name"."""


def resolved(value: Any) -> Any:
    """Replace stand-ins in data by their values."""
    return _resolved(value, {})


def _resolved(value: Any, done: dict[int, Any]) -> Any:
    """Replace stand-ins. Shared parts remain shared, which bounds the work by the file. Containers change in place."""
    if isinstance(value, ArrayStandIn):
        return _resolved(value.value, done)
    if isinstance(value, DTypeStandIn):
        return str(value.dtype)
    if isinstance(value, PickleConstructor):
        return None
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in done:
        return done[id(value)][1]
    done[id(value)] = (value, value)  # the first element keeps the object alive, so that no other object has its id
    if isinstance(value, dict):
        for key, part in value.items():
            value[key] = _resolved(part, done)
    elif isinstance(value, list):
        value[:] = [_resolved(part, done) for part in value]
    else:
        done[id(value)] = (value, tuple(_resolved(part, done) for part in value))
    return done[id(value)][1]
