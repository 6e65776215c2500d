"""Parses graphs from their text (see `text` for the grammar)."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.builder import GraphBuilder
from polyhal.hal.compile.ir.graph import Graph, NodeOrigin, Operand, Value
from polyhal.hal.compile.ir.text import NOWHERE
from polyhal.hal.core.settings.state import Settings
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import ScalarSpec, Spec, contiguous_strides
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>\#\s.*)
    |(?P<value>%\d+)
    |(?P<number>-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf\b|nan\b))
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>[A-Za-z_][\w.]*)
    |(?P<sign><-|[=(),:\[\]]))""",
    re.VERBOSE,
)
_WORDS = {"None": None, "True": True, "False": False}


def parse(text: str, device: Device | str | None = None) -> Graph:
    """Return the graph whose `str` is `text`, on `device` if one is given and otherwise on those that the text names.

    Raises CorruptFileError, which names the line, and DeviceUnavailableError.
    """
    return _Parser(device).parse(text)


class _Parser:
    def __init__(self, device: Device | str | None) -> None:
        self._device = None if device is None else Device(device)
        self._builder = GraphBuilder("the graph's text")
        self._place: tuple[Device, tuple[Any, ...]] | None = None

    def parse(self, text: str) -> Graph:
        builder = self._builder
        ended = False
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            where = f"line {number}"
            if ended:
                raise builder.fail(where, "it comes after the results")
            if line.startswith("on "):
                with builder.reading(where):
                    self._place = self._placed(line)
                continue
            with builder.reading(where):
                ended = self._line(where, _Line(line))
        if not ended:
            raise builder.fail("the end", "the results are missing", expected="a line `return ...`")
        return builder.graph

    def _placed(self, line: str) -> tuple[Device, tuple[Any, ...]] | None:
        if line == NOWHERE:
            return None
        name, *changed = line.removeprefix("on ").split(", ")
        values = Settings.named(Settings().result_key)
        for setting in changed:
            key, _, value = setting.partition(" ")
            if key not in values:
                raise ValueError(f"there is no setting {key!r}")
            values[key] = type(values[key])(value == "True" if isinstance(values[key], bool) else value)
        return self._device or Device(name), tuple(values.values())

    def _line(self, where: str, line: _Line) -> bool:
        """Parse a line. Returns whether it is the last."""
        builder = self._builder
        if line.take_if("return"):
            builder.outputs(line.list_until_end(line.value))
            line.end()
            return True
        first = line.value()
        if line.take_if(":"):
            spec = line.spec()
            if builder.graph.nodes or first != len(builder.graph.specs):
                raise ValueError(f"input %{first} out of order")
            builder.input(spec, line.end())
        elif line.take_if("<-"):
            builder.update(first, line.value())
            line.end()
        else:
            self._node(where, first, line)
        return False

    def _node(self, where: str, first: int, line: _Line) -> None:
        values = [first]
        while line.take_if(","):
            values.append(line.value())
        line.take("=")
        op = line.name()
        operands: list[Operand] = []
        params: dict[str, Any] = {}
        line.take("(")
        while not line.take_if(")"):
            name = line.keyword()
            if name:
                params[name] = line.literal()
            else:
                operands.append(line.operand())
            if not line.take_if(","):
                line.take(")")
                break
        line.take(":")
        results = line.list_until_end(line.spec)
        over = tuple(line.literal()) if line.take_if("over") else ()
        again = line.literal() if line.take_if("again") else 0
        module = line.end()
        origin = None if self._place is None else NodeOrigin(*self._place, module, again)
        if not all(isinstance(r, Spec) for r in results):
            raise ValueError("a result that is no tensor")
        outputs = self._builder.node(where, op, operands, params, results, origin, over)
        if list(outputs) != values:
            raise ValueError(f"it defines {values}; expected {list(outputs)}")


class _Line:
    """The tokens of one line, from left to right. Raises ValueError for an unexpected one."""

    def __init__(self, text: str) -> None:
        self._parts: list[tuple[str, str]] = []
        position, text = 0, text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise ValueError(f"cannot read {text[position:]!r}")
            kind = str(found.lastgroup)
            self._parts.append((kind, found[kind]))
            position = found.end()
        self._next = 0

    def _peek(self) -> tuple[str, str]:
        return self._parts[self._next] if self._next < len(self._parts) else ("end", "the end")

    def _kind(self, kind: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise ValueError(f"found {text!r}; expected a {kind}")
        self._next += 1
        return text

    def take_if(self, text: str) -> bool:
        """Skip a word or sign if it comes next. Returns whether it did."""
        kind, found = self._peek()
        matches = found == text and kind in ("sign", "name")
        self._next += matches
        return matches

    def take(self, text: str) -> None:
        if not self.take_if(text):
            raise ValueError(f"found {self._peek()[1]!r}; expected {text!r}")

    def value(self) -> int:
        return int(self._kind("value")[1:])

    def name(self) -> str:
        return self._kind("name")

    def keyword(self) -> str:
        """The name of a parameter, if one comes next; otherwise an empty string."""
        following = self._parts[self._next + 1] if self._next + 1 < len(self._parts) else ("", "")
        if self._peek()[0] != "name" or following != ("sign", "="):
            return ""
        self._next += 2
        return self._parts[self._next - 2][1]

    def operand(self) -> Operand:
        return Value(self.value()) if self._peek()[0] == "value" else self.literal()

    def literal(self) -> Any:
        """A Python number, string, dtype or None, or a tuple or list of such, as their `repr` writes them."""
        kind, text = self._peek()
        self._next += 1
        if kind == "number":
            exact = text.lstrip("-").isdigit()
            return int(text) if exact else float(text)
        if kind == "string":
            return ast.literal_eval(text)
        if kind == "name" and text in _WORDS:
            return _WORDS[text]
        if kind == "name" and text in ("inf", "nan"):
            return float(text)
        if kind == "name" and text.startswith("polyhal."):
            return as_dtype(text.removeprefix("polyhal."))
        if (kind, text) in (("sign", "("), ("sign", "[")):
            close = ")" if text == "(" else "]"
            items = []
            while not self.take_if(close):
                items.append(self.literal())
                if not self.take_if(","):
                    self.take(close)
                    break
            return tuple(items)
        raise ValueError(f"found {text!r}; expected a number, a string, a dtype or a tuple")

    def spec(self) -> InputSpec | None:
        """The spec of a value."""
        name = self.name()
        if name == "none":
            return None
        dtype = as_dtype(name)
        if self.take_if("number"):
            return ScalarSpec(dtype)
        shape = self._lengths()
        strides = self._lengths() if self.take_if("strides") else contiguous_strides(shape)
        if len(strides) != len(shape):
            raise ValueError(f"{len(strides)} strides of {len(shape)} axes")
        return Spec(dtype, shape, strides, not self.take_if("unaligned"))

    def _lengths(self) -> tuple[int, ...]:
        found = self.literal()
        if not isinstance(found, tuple) or any(type(n) is not int for n in found):
            raise ValueError(f"found {found!r}; expected whole numbers")
        return found

    def list_until_end(self, take: Callable[[], Any]) -> list[Any]:
        """Items between commas; none at the end of a line."""
        if self._peek()[0] in ("end", "comment"):
            return []
        found = [take()]
        while self.take_if(","):
            found.append(take())
        return found

    def end(self) -> str:
        """Expect the end of the line. Returns the comment, if there is one."""
        kind, text = self._peek()
        if kind == "comment":
            self._next += 1
            text = text[1:].strip()
            return str(json.loads(text)) if text.startswith('"') else text
        if kind != "end":
            raise ValueError(f"found {text!r}; expected the end of the line")
        return ""
