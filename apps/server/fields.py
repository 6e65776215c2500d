"""Fields of a request's body, with their types and ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from polyhal.server.errors import RequestError

_LONGEST_VALUE = 60


def shown(value: object) -> str:
    """Format a value of a request for an error message."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def parse_body(raw: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Raises RequestError, also for numbers and characters that JSON does not have."""
    try:
        body = json.loads(raw, parse_constant=_refuse_constant)
        if b"\\u" in raw:
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeError:
        raise RequestError("the body is not valid Unicode", expected="UTF-8 without surrogates") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {str(error)[:200]}", expected="a JSON object") from None
    if not isinstance(body, dict):
        raise RequestError(f"the body is {shown(body)}", expected="a JSON object")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


class Fields:
    """Reads the fields of a body. A field that is null counts as absent."""

    def __init__(self, body: dict[str, Any], known: Iterable[str], ignored: Iterable[str]) -> None:
        """Raises RequestError for a field that is neither known nor ignored."""
        self.body = {name: value for name, value in body.items() if value is not None}
        known = set(known)
        if unknown := sorted(set(self.body) - known - set(ignored)):
            expected, fix = f"fields among {', '.join(sorted(known))}", "remove it or correct its name"
            raise RequestError(
                f"unknown field {shown(unknown[0])}", expected=expected, fix=fix, param=unknown[0], code="unknown_field"
            )

    def __contains__(self, name: str) -> bool:
        return name in self.body

    def refuse(self, name: str, expected: str, fix: str = "", code: str | None = None) -> NoReturn:
        """Raise an error about the value of a field."""
        problem = f"{name} is {shown(self.body.get(name))}"
        raise RequestError(problem, expected=expected, fix=fix, param=name, code=code)

    def number(self, name: str, default: float, low: float, high: float, above: bool = False) -> float:
        """Return a number from `low` to `high`, or above `low`."""
        value = self.body.get(name, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value) and low <= value <= high and not (above and value == low)):
            self.refuse(
                name, f"a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}"
            )
        return float(value)

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """Return an integer from `low` to `high`."""
        value = self.body.get(name, default)
        if value is None:
            return None
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"an integer from {low} to {high}")
        return value

    def flag(self, name: str) -> bool:
        """Return a Boolean, False if the field is absent."""
        value = self.body.get(name, False)
        if type(value) is not bool:
            self.refuse(name, "true or false")
        return value

    def strings(self, name: str, most: int) -> tuple[str, ...]:
        """Return a string, or a list of up to `most` strings; none of them empty."""
        value = self.body.get(name, [])
        strings = [value] if isinstance(value, str) else value
        if not (isinstance(strings, list) and len(strings) <= most and all(isinstance(s, str) and s for s in strings)):
            self.refuse(name, f"a string, or a list of at most {most} strings, none of them empty")
        return tuple(strings)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object, empty if the field is absent."""
        value = self.body.get(name, {})
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return value
