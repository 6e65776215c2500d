"""Limits on the work and memory of a template, which is a program of whoever made the model.

The sandbox of jinja2 keeps a template from Python's objects, not from loops without end and texts without size. Here every
loop, call, filter, output and growing operator is counted or measured before it is computed.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from polyhal.hal.errors import message
from polyhal.llm.template_errors import TemplateLimitError

SECONDS = 1.0
MOST_ITERATIONS = 1_000_000
LONGEST = 1 << 22
"""Maximum characters or items of an intermediate value, and of the result."""
_LARGEST_NUMBER = 1 << 20
"""Maximum integer argument of a method or filter, such as a width."""
_LARGEST_PRODUCT = 1 << 28
_MOST_BITS = 1 << 12
_MOST_PARTS = 1 << 19
_SLOW_FILTERS = {"do_wordwrap": 1 << 16, "do_urlize": 1 << 16, "do_title": 1 << 16}
"""Maximum characters of texts for filters that take microseconds per character."""
_LONG_NUMBER = re.compile(r"\d{5,}|\*|\{[^}]*\{")


class Budget:
    """Work that one rendering may still do."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + SECONDS
        self._iterations = MOST_ITERATIONS
        self._characters = LONGEST

    def spend(self, iterations: int = 0, characters: int = 0) -> None:
        """Count work. Raises TemplateLimitError beyond the limits."""
        self._iterations -= iterations
        self._characters -= characters
        if self._iterations < 0:
            raise _exceeded(f"loops more than {MOST_ITERATIONS} times")
        if self._characters < 0:
            raise _exceeded(f"writes more than {LONGEST} characters")
        if time.monotonic() > self._deadline:
            raise _exceeded(f"takes more than {SECONDS:g} s")


_current: ContextVar[Budget | None] = ContextVar("budget of a template", default=None)


def _exceeded(problem: str) -> TemplateLimitError:
    return TemplateLimitError(message("chat_template", f"the template {problem}", fix="use another template"))


@contextmanager
def budget() -> Iterator[None]:
    """Give the block a new budget."""
    token = _current.set(Budget())
    try:
        yield
    finally:
        _current.reset(token)


def spend(iterations: int = 0, characters: int = 0) -> None:
    """Count work against the budget of the rendering in progress."""
    current = _current.get()
    if current is not None:
        current.spend(iterations, characters)


def counted(items: Iterable[object]) -> Iterator[object]:
    """Yield the items of a loop, each counted."""
    for item in items:
        spend(iterations=1)
        yield item


def written(value: object) -> object:
    """Count the characters of an output."""
    check_weight(value)
    spend(characters=len(value) if isinstance(value, str) else len(str(value)))
    return value


def check_weight(*values: object) -> None:
    """Raise TemplateLimitError for values with too many parts or characters, for example a list that repeats a long text."""
    parts, characters, pending = 0, 0, [*values]
    while pending:
        value = pending.pop()
        parts += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            pending += value
        if max(parts, len(pending)) > _MOST_PARTS or characters > LONGEST:
            raise _exceeded(f"makes a value of more than {_MOST_PARTS} parts or {LONGEST} characters")


def joined(*parts: object) -> str:
    """Concatenate values as text: the operator `~`."""
    check_weight(*parts)
    texts = [str(part) for part in parts]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _check_length(length: int) -> None:
    spend()
    if length > LONGEST:
        raise _exceeded(f"makes a value of {length} characters or items")


def _size(value: object) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict)) else 1


def check_operator(operator: str, left: object, right: Any) -> None:
    """Raise TemplateLimitError for an operator whose result is too large."""
    numbers = [v for v in (left, right) if isinstance(v, int)]
    if operator == "%" and isinstance(left, str):
        check_format(left)
    if operator == "+":
        _check_length(_size(left) + _size(right))
    elif operator == "*" and len(numbers) == 1:
        _check_length(max(0, numbers[0]) * max(_size(left), _size(right)))
    elif operator in ("*", "**") and len(numbers) == 2:
        bits = [abs(v).bit_length() for v in numbers]
        if (bits[0] * abs(right) if operator == "**" else sum(bits)) > _MOST_BITS:
            raise _exceeded(f"computes a number of more than {_MOST_BITS} bits")
    spend()


def check_format(text: str) -> None:
    """Raise TemplateLimitError for a format with widths of many digits, or with widths that are arguments."""
    if _LONG_NUMBER.search(text):
        raise _exceeded(f"formats with a width in {text[:40]!r}")


def check_call(receiver: object, args: Iterable[object], kwargs: Mapping[str, object]) -> None:
    """Raise TemplateLimitError for arguments that could make a very large result of a text or list."""
    spend()
    values = [*args, *kwargs.values()]
    check_weight(receiver, *values)
    largest = max((abs(v) for v in values if isinstance(v, int)), default=0)
    if largest > _LARGEST_NUMBER:
        raise _exceeded(f"passes the number {largest}")
    sizes = [_size(v) for v in values if isinstance(v, (str, list, tuple))]
    if max(1, _size(receiver)) * max([largest, *sizes]) > _LARGEST_PRODUCT:
        raise _exceeded(f"combines values of {_size(receiver)} and {max([largest, *sizes])} characters or items")


def limited_filter(function: Any) -> Any:
    """Return a filter that checks its arguments and its result."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, rest = args[skipped] if len(args) > skipped else None, args[skipped + 1 :]
        if isinstance(value, (Iterator, range)):
            value = list(counted(value))
        if isinstance(value, str) and function.__name__ == "do_format":
            check_format(value)
        if _size(value) > _SLOW_FILTERS.get(function.__name__, LONGEST):
            raise _exceeded(f"passes {_size(value)} characters to {function.__name__}")
        if any(isinstance(v, list) for v in kwargs.values()):
            raise _exceeded(f"passes a list to {function.__name__}")
        check_call(value, rest, kwargs)
        result = function(*args[:skipped], *([value] if len(args) > skipped else []), *rest, **kwargs)
        _check_length(_size(result))
        return result

    return call


class Measured(NodeTransformer):
    """Adds the counts to a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        """Count the iterations of a loop."""
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "counted")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        """Count the characters of an output."""
        self.generic_visit(node)
        node.nodes = [
            _filtered(nodes.Const(part.data) if isinstance(part, nodes.TemplateData) else part, "written")
            for part in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Measure a concatenation."""
        self.generic_visit(node)
        first, *rest = node.nodes
        return nodes.Filter(first, "joined", rest, [], None, None)


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)
