"""A reader of pickles that builds data and executes nothing.

It interprets the opcodes itself instead of restricting Python's unpickler, which calls and modifies arbitrary objects. A
global in the file is only looked up in the reader's own table; other globals raise. Source of the opcodes: the standard
library's `pickletools`.
"""

from __future__ import annotations

import pickletools
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Protocol, runtime_checkable

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message


class PickleConstructor:
    """Replacement of a callable in a pickle: constructs plain data from checked arguments."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


@runtime_checkable
class PickleStandIn(Protocol):
    """Data whose state a pickle sets after construction."""

    def set_state(self, state: Any) -> None:
        """Set the state. Raises ValueError for a state that this kind of data does not have."""


_MARK = object()
"""Sentinel on the stack at the start of the items of a container."""
_LARGEST_KEY = 100
"""Maximum number of parts of a key. Python hashes nested tuples without any limit on depth or on repetition."""
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    ]
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "EMPTY_TUPLE": tuple,
}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def hashable(values: Iterable[Any]) -> list[Any]:
    """Return values as keys. Raises ValueError for tuples of a size at which hashing hangs or crashes."""
    out = list(values)
    for value in out:
        parts, count = [value], 0
        while parts:
            part = parts.pop()
            count += 1
            if count > _LARGEST_KEY:
                raise ValueError("a key of that size")
            if isinstance(part, (tuple, frozenset)):
                parts.extend(part)
    return out


def short(value: Any) -> str:
    """Return a short representation of a value for messages: its full text may have any length."""
    return reprlib.repr(value)


class PickleReader:
    """Reads one pickle after another from a file."""

    def __init__(
        self, allowed: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None, fix: str = ""
    ) -> None:
        """`allowed` maps "module name" to its replacement; `persistent` resolves references to data outside of the pickle."""
        self._allowed = allowed
        self._persistent = persistent
        self._fix = fix
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, file: BinaryIO) -> Any:
        """Read one pickle; the position of the file is then at its end.

        Raises IncompatibleFileError, with the name, for a global that is not allowed, and ValueError, IndexError, KeyError or
        TypeError for damaged data.
        """
        self._stack, self._memo = [], {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from escape sequences in damaged text
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name == "STOP":
                    (value,) = self._stack
                    return value
                self._step(opcode.name, argument)
        raise ValueError("it does not end")

    def _step(self, name: str, argument: int | str | None) -> None:
        stack = self._stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _SHORT_TUPLES:
            count = _SHORT_TUPLES[name]
            if len(stack) < count:
                raise ValueError("it pops more values than the stack contains")
            stack[-count:] = [tuple(stack[-count:])]
        else:
            step = _STEPS.get(name)
            if step is None:
                raise CorruptFileError(
                    message("load", f"the pickle has the instruction {name}, which pickles of weights do not use")
                )
            step(self, argument)

    def _pop_mark(self) -> list[Any]:
        for i in range(len(self._stack) - 1, -1, -1):
            if self._stack[i] is _MARK:
                values = self._stack[i + 1 :]
                del self._stack[i:]
                return values
        raise ValueError("it closes a group that is not open")

    def _global(self, name: str) -> None:
        if name not in self._allowed:
            raise IncompatibleFileError(
                message(
                    "load",
                    f"the file names {name.replace(' ', '.')}, which is not data and was not imported",
                    expected="tensors and plain data",
                    fix=self._fix,
                )
            )
        self._stack.append(self._allowed[name])

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a global whose name is not text")
        self._global(f"{module} {name}")

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, PickleConstructor) or not isinstance(arguments, tuple):
            raise ValueError(f"it calls a {type(function).__name__}")
        self._stack.append(function.make(*arguments))

    def _build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, PickleStandIn):
            target.set_state(state)
        elif type(target) is not dict:  # attributes of dictionaries, such as PyTorch's state dicts have, are ignored
            raise ValueError(f"it sets the state of a {type(target).__name__}")

    def _append(self, values: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError("APPENDS on an object that is not a list")
        self._stack[-1].extend(values)

    def _set_items(self, values: list[Any]) -> None:
        if type(self._stack[-1]) is not dict or len(values) % 2:
            raise ValueError("SETITEMS on an object that is not a dict")
        self._stack[-1].update(zip(hashable(values[::2]), values[1::2], strict=True))

    def _add_items(self, values: list[Any]) -> None:
        if type(self._stack[-1]) is not set:
            raise ValueError("ADDITEMS on an object that is not a set")
        self._stack[-1].update(hashable(values))

    def _resolve(self) -> None:
        if self._persistent is None:
            raise ValueError("it refers to data outside of the pickle")
        self._stack.append(self._persistent(self._stack.pop()))

    def _store(self, key: int) -> None:
        self._memo[key] = self._stack[-1]

    def _pair(self) -> list[Any]:
        if len(self._stack) < 3:
            raise ValueError("it pops more values than the stack contains")
        pair = self._stack[-2:]
        del self._stack[-2:]
        return pair

    def _dictionary(self) -> None:
        values = self._pop_mark()
        self._stack.append({})
        self._set_items(values)


_STEPS: dict[str, Callable[[PickleReader, Any], Any]] = {
    "PROTO": lambda r, a: None,
    "FRAME": lambda r, a: None,
    "MARK": lambda r, a: r._stack.append(_MARK),
    "POP": lambda r, a: r._stack.pop(),
    "POP_MARK": lambda r, a: r._pop_mark(),
    "DUP": lambda r, a: r._stack.append(r._stack[-1]),
    "APPEND": lambda r, a: r._append([r._stack.pop()]),
    "APPENDS": lambda r, a: r._append(r._pop_mark()),
    "LIST": lambda r, a: r._stack.append(r._pop_mark()),
    "TUPLE": lambda r, a: r._stack.append(tuple(r._pop_mark())),
    "DICT": lambda r, a: r._dictionary(),
    "SETITEM": lambda r, a: r._set_items(r._pair()),
    "SETITEMS": lambda r, a: r._set_items(r._pop_mark()),
    "ADDITEMS": lambda r, a: r._add_items(r._pop_mark()),
    "FROZENSET": lambda r, a: r._stack.append(frozenset(hashable(r._pop_mark()))),
    "PUT": PickleReader._store,
    "BINPUT": PickleReader._store,
    "LONG_BINPUT": PickleReader._store,
    "MEMOIZE": lambda r, a: r._store(len(r._memo)),
    "GET": lambda r, a: r._stack.append(r._memo[a]),
    "BINGET": lambda r, a: r._stack.append(r._memo[a]),
    "LONG_BINGET": lambda r, a: r._stack.append(r._memo[a]),
    "GLOBAL": PickleReader._global,
    "STACK_GLOBAL": lambda r, a: r._stack_global(),
    "REDUCE": lambda r, a: r._reduce(),
    "NEWOBJ": lambda r, a: r._reduce(),
    "BUILD": lambda r, a: r._build(),
    "BINPERSID": lambda r, a: r._resolve(),
}
"""Handlers of the remaining opcodes."""


__all__ = ["PickleConstructor", "PickleReader", "PickleStandIn"]
