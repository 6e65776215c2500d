"""The local memory that a kernel declares, read from its program without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from polyhal.backends.common.codegen.constant_expression import evaluate
from polyhal.backends.common.codegen.preprocessor import Macros, expand

_QUALIFIERS = frozenset({"const", "volatile"})
_SIZES = {
    "char": 1, "uchar": 1, "bool": 1, "short": 2, "ushort": 2, "half": 2, "int": 4, "uint": 4, "float": 4,
    "long": 8, "ulong": 8, "double": 8,
}  # fmt: skip
_VECTOR = re.compile(r"([a-z]+)(2|3|4|8|16)?")
_TYPEDEF = re.compile(r"\btypedef\s+([^;{]*(?:\{[^}]*\})?)\s*\b(\w+)\s*;")
_ARGUMENTS = r"(?:\s*\((?:[^()]|\([^()]*\))*\))?"
_KERNEL = r"\b__kernel\b.*?\bvoid\s+(?P<kernel>\w+)"


def declared_local_memory(pieces: Iterable[tuple[str, Macros]], kernel: str) -> int:
    """Return the bytes of the `__local` arrays of a kernel of a program, given its text (see `ActiveText.pieces`).

    Raises ValueError for declarations that it cannot parse.
    """
    total, owner = 0, ""
    types: dict[str, str] = {}
    for piece, macros in pieces:
        if "typedef" in piece:
            types |= {m[2]: m[1] for m in _TYPEDEF.finditer(piece)}
        if not owner and "__kernel" not in piece:
            continue
        for match in _interesting(macros).finditer(piece):
            if match["kernel"]:
                owner = match["kernel"]
            elif owner == kernel:
                for size, alignment in _variables(expand(match["local"], macros), types, macros):
                    total = -(-total // alignment) * alignment + size
    return total


def _interesting(macros: Macros) -> re.Pattern[str]:
    """Return a pattern for the beginning of a kernel and for statements with local memory, which a macro may declare."""
    declaring = (m.name for m in macros.values() if "__local" in m.body and "[" in m.body)
    calls = "".join(rf"|\b{name}\b{_ARGUMENTS}" for name in declaring)
    return re.compile(rf"{_KERNEL}|(?P<local>\b__local\b[^;]*{calls})", re.DOTALL)


def _variables(tokens: Sequence[str], types: Mapping[str, str], macros: Macros) -> Iterator[tuple[int, int]]:
    """Yield size and alignment, in bytes, of each variable in local memory."""
    rest = [t for t in tokens if t not in _QUALIFIERS]
    while "__local" in rest:
        rest = rest[rest.index("__local") + 1 :]
        if "*" in rest[:2] or rest[1:2] == [")"]:  # a pointer to local memory, or a cast to one
            continue
        end = next((i for i, t in enumerate(rest) if t in (";", "__local")), len(rest))
        element = _element(rest[0], types, macros)
        for name in _split(rest[1:end], ","):
            yield _size(name, element)


def _size(words: Sequence[str], element: int) -> tuple[int, int]:
    """Return size and alignment of one declared name, such as `x [ 4 ] [ 8 ] __attribute__ ( ( aligned ( 16 ) ) )`."""
    alignment, size = element, element
    if "aligned" in words:
        at = words.index("aligned")
        alignment = evaluate(tuple(words[at + 2 : words.index(")", at)]))
        words = words[: words.index("__attribute__")]
    at = 1
    while at < len(words):
        if words[at] != "[":
            raise ValueError(f"cannot read the array {' '.join(words)}")
        closing = _closing(words, at)
        size *= evaluate(tuple(words[at + 1 : closing]))
        at = closing + 1
    return size, alignment


def _closing(words: Sequence[str], opening: int) -> int:
    depth = 0
    for at in range(opening, len(words)):
        depth += (words[at] == "[") - (words[at] == "]")
        if not depth:
            return at
    raise ValueError(f"cannot read the array {' '.join(words)}")


def _split(words: Sequence[str], separator: str) -> list[list[str]]:
    """Return the pieces between separators outside brackets."""
    found: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in "([") - (word in ")]")
        if word == separator and depth <= 0:
            found.append([])
        else:
            found[-1].append(word)
    return [piece for piece in found if piece]


def _element(kind: str, types: Mapping[str, str], macros: Macros) -> int:
    """Return the bytes of a type: a scalar, a vector, or a typedef of one. A vector of 3 is as large as one of 4."""
    match = _VECTOR.fullmatch(kind)
    if match and match[1] in _SIZES:
        return _SIZES[match[1]] * (4 if match[2] == "3" else int(match[2] or 1))
    if kind not in types:
        raise ValueError(f"the type {kind} of an array in local memory is not known")
    words = expand(types[kind], macros)
    if "{" not in words:
        return _element(words[-1], types, macros)
    total, widest = 0, 1
    for member in _split(words[words.index("{") + 1 : -1], ";"):
        size = _element(member[0], types, macros)
        for _ in _split(member[1:], ","):
            total = -(-total // size) * size + size
        widest = max(widest, size)
    return -(-total // widest) * widest
