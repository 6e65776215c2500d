"""Ways to damage a file: bytes, trees of plain data, and TOML."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_HOSTILE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 7, 255, 2**31, 2**40, 2**53, 2**63, 2**64, 10**30, -(2**63), 0.5, -0.0, 1e308,
    float("inf"), float("-inf"), float("nan"), "", "x", "0", "float32", "bool", "numpy", "opencl:99", "\ud800", "\x00",
    "..", ".", "/etc/passwd", "../../../etc/passwd", "a/b", "x" * 2000, "$tensor", "2024-01-01", [], {}, [[]], [0],
    [2**40, 2**40], [10**9, 0], {"$tensor": "x"}, {"$tensor": 1}, {"$tensor": []}, {"$tuple": 3}, {"$dict": [[1]]},
    {"$dict": [[[], 1]]}, {"$float": []}, {"$float": "nan"}, {"$array": {}}, {"$other": 1}, {"value": 10**6}, {"float": []},
)  # fmt: skip
"""Replacements for a field of a file."""
_NAMES = ("$tensor", "$dict", "$tuple", "$float", "$array", "kind", "class", "", "__class__", "x", "\ud800")
_DEEP = 100_000


def damaged_bytes(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Change a few bytes, cut, repeat, insert, or splice with another file."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(8)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << random.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = random.randrange(256)
        elif kind == 2:
            form = random.choice(("<B", "<H", "<I", "<Q", ">H", ">I"))
            number = random.choice(_NUMBERS) & ((1 << (8 * struct.calcsize(form))) - 1)
            out[at : at + struct.calcsize(form)] = struct.pack(form, number)
        elif kind == 3:
            del out[at : at + random.choice((1, 2, 4, 8, 64))]
        elif kind == 4:
            out[at:at] = out[at : at + random.choice((1, 4, 16, 256))]
        elif kind == 5:
            out[at:at] = random.randbytes(random.choice((1, 2, 4, 16)))
        elif kind == 6:
            del out[at:]
        elif others:
            other = random.choice(others)
            out[at:] = other[random.randrange(len(other) + 1) :]
    return bytes(out)


def damaged_tree(random: Random, tree: Any) -> Any:
    """Replace, remove, rename, repeat or swap a few parts of a tree of plain data."""
    out = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = list(_places(out))
        if not places:
            return random.choice(_HOSTILE)
        holder, key = random.choice(places)
        kind = random.randrange(7)
        if kind <= 2:
            holder[key] = copy.deepcopy(random.choice(_HOSTILE))
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[random.choice(_NAMES)] = holder.pop(key)
        elif kind == 4:
            holder.append(copy.deepcopy(holder[key]))
        elif kind == 5:
            other, place = random.choice(places)
            holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
        else:
            holder[key] = _varied(random, holder[key])
    return out


def _varied(random: Random, value: Any) -> Any:
    """Return a value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((-value, value + 1, value - 1, value * 2**20, random.choice(_NUMBERS)))
    if isinstance(value, float):
        return random.choice((-value, value * 1e300, float("nan"), 0.0))
    if isinstance(value, str):
        return damaged_bytes(random, value.encode(errors="replace")).decode(errors="replace")
    return [value] if random.random() < 0.5 else {"x": value}


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Return every part of a tree, as a container and a key."""
    stack = [tree]
    while stack:
        holder = stack.pop()
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, part in entries:
            yield holder, key
            stack.append(part)


def damaged_json(random: Random, tree: Any, seal: Callable[[Any], Any] = lambda tree: tree) -> bytes:
    """Return JSON of a damaged tree, or damaged text. `seal` recomputes dependent fields, such as checksums."""
    kind = random.randrange(10)
    if kind == 0:
        return damaged_bytes(random, json.dumps(tree).encode())
    text = json.dumps(seal(damaged_tree(random, tree)))
    if kind == 1:  # text that may only break a parser
        deep = random.choice(('{"a":' * _DEEP, "[" * _DEEP, "[" * 2000 + "]" * 2000, "9" * 5000, "-Infinity", "1e999"))
        at = random.randrange(len(text))
        text = random.choice((text[:at] + deep + text[at:], deep, f'{{"schema": 1, "x": {deep}}}'))
    return text.encode(errors="surrogatepass")


def damaged_toml(random: Random, lines: Sequence[str]) -> bytes:
    """Return lines of a TOML file with hostile values, or damaged text."""
    values = (
        "1",
        "-1",
        "0",
        "1e400",
        "nan",
        "inf",
        "true",
        '"x"',
        "[]",
        "[" * 3000 + "]" * 3000,
        "[" * _DEEP,
        "{a=1}",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "9" * 5000,
        "0x" + "f" * 5000,
        '"' + "x" * 5000 + '"',
        "2024-13-45",
        "0o9",
        "'''a'''",
        '"\\ud800"',
        "99999-01-01",
        "1_000",
        "{x={x={x=1}}}",
        "-9223372036854775809",
    )
    out = []
    for line in lines:
        name = line.partition("=")[0]
        out.append(f"{name}= {random.choice(values)}" if random.random() < 0.2 else line)
    if random.random() < 0.3:
        out.append(
            random.choice(("[train]", "[train.x]", "[[train]]", "train = 3", "a." * 3000 + "b = 1", "x = 1", "]"))
        )
    random.shuffle(out)
    text = "\n".join(out).encode()
    return damaged_bytes(random, text) if random.random() < 0.4 else text
