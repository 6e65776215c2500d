"""The parameters of kernels, parsed from their source: names, and kinds of bindings.

OpenCL C and CUDA C are parsed by the same rules. A struct that is passed by value is written `typedef struct { ... }
Name;` with scalar members, which the host fills by name. Members of 8 bytes come first, so that every compiler uses the
same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from polyhal.backends.common.codegen.constant_expression import evaluate
from polyhal.backends.common.codegen.preprocessor import Declaration, Declarations
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import ScalarType

NUMPY_TYPES: dict[ScalarType, type[np.generic]] = {
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
_SCALARS: dict[str, ScalarType] = {
    "int": "int",
    "uint": "uint",
    "long": "long",
    "ulong": "ulong",
    "float": "float",
    "double": "double",
    "unsigned": "uint",
    "unsigned int": "uint",
    "unsigned long": "ulong",
    "long long": "long",
    "unsigned long long": "ulong",
}
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict__", "private", "__private", "__grid_constant__"})
_MEMORY = {"__global": "global", "global": "global", "__constant": "global", "__local": "local", "local": "local"}


@dataclass(frozen=True, slots=True)
class StructMember:
    """A scalar in a struct, or an array of `length` of them."""

    name: str
    type: ScalarType
    length: int = 0


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter. `type` is the type of a scalar, else None; `members` are the members of a struct, else empty."""

    name: str
    kind: Literal["global", "local", "scalar", "struct"]
    type: ScalarType | None = None
    members: tuple[StructMember, ...] = ()
    read_only: bool = False
    """True for a pointer to constants."""


@dataclass(frozen=True)
class KernelSignature:
    """The parameters of a kernel of a file."""

    file: str
    kernel: str
    parameters: tuple[KernelParameter, ...]

    @cached_property
    def names(self) -> dict[str, KernelParameter | StructMember]:
        """Return parameters and members of structs by name."""
        members: dict[str, KernelParameter | StructMember] = {m.name: m for p in self.parameters for m in p.members}
        return members | {p.name: p for p in self.parameters}

    @cached_property
    def structs(self) -> dict[str, np.dtype[np.void]]:
        """Return the layout of each struct, by the parameter's name."""
        return {p.name: struct_layout(p.members) for p in self.parameters if p.members}


class KernelSignatures:
    """The signatures of the kernels in a folder."""

    def __init__(self, read: Callable[[str], str], kernel_words: str = "__kernel") -> None:
        """Read files with `read(name)`; the pattern `kernel_words` matches the words that begin a kernel."""
        self._declarations = Declarations(read, kernel_words)

    def forget(self) -> None:
        """Drop the cached signatures, so that files are read again."""
        self._declarations.forget()

    def of(self, file: str, kernel: str, definitions: Definitions) -> KernelSignature:
        """Return the signature of a kernel with these definitions. Raises ValueError if it cannot be parsed."""
        for signature in self.kernels(file, definitions, kernel):
            if signature.kernel == kernel:
                return signature
        raise ValueError(f"{file} has no kernel {kernel}")

    def kernels(self, file: str, definitions: Definitions, kernel: str = "") -> Iterator[KernelSignature]:
        """Yield the signatures of a file's kernels, or of candidates for `kernel`.

        Raises ValueError if one cannot be parsed.
        """
        for declaration in self._declarations.of(file, definitions, kernel):
            tokens = declaration.tokens
            opening = _opening(tokens)
            yield KernelSignature(file, tokens[opening - 1], tuple(_parameters(tokens[opening + 1 : -1], declaration)))


def struct_layout(members: Sequence[StructMember]) -> np.dtype[np.void]:
    """Return the struct's layout, padded only at its end."""
    fields = [
        (m.name, NUMPY_TYPES[m.type], (m.length,)) if m.length else (m.name, NUMPY_TYPES[m.type]) for m in members
    ]
    return np.dtype(fields, align=True)


def _opening(tokens: Sequence[str]) -> int:
    """Return the start of the parameter list: the last parenthesis that is not nested."""
    depth = 0
    for at in range(len(tokens) - 1, -1, -1):
        depth += (tokens[at] == ")") - (tokens[at] == "(")
        if tokens[at] == "(" and not depth:
            return at
    raise ValueError(f"no parameter list in {' '.join(tokens)}")


def _parameters(tokens: Sequence[str], declaration: Declaration) -> Iterator[KernelParameter]:
    for words in _separated(tokens, ","):
        name = words[-1]
        if "*" in words:
            memory = next((_MEMORY[w] for w in words if w in _MEMORY), "global")
            constant = not {"const", "__constant"}.isdisjoint(words[: words.index("*")])
            yield KernelParameter(name, "local" if memory == "local" else "global", read_only=constant)
            continue
        kind = _unqualified(words[:-1])
        scalar = _scalar(kind, declaration)
        if scalar is not None:
            yield KernelParameter(name, "scalar", scalar)
        elif members := tuple(_members(declaration.typedef(kind), declaration)):
            sizes = [np.dtype(NUMPY_TYPES[m.type]).itemsize for m in members]
            if sizes != sorted(sizes, reverse=True):
                raise ValueError(f"members of 8 bytes must come first in {kind}, the struct of the parameter {name}")
            yield KernelParameter(name, "struct", members=members)
        else:
            raise ValueError(f"the type {kind!r} of the parameter {name} is not a scalar or a struct of scalars")


def _unqualified(words: Sequence[str]) -> str:
    return " ".join(w for w in words if w not in _QUALIFIERS)


def _scalar(kind: str, declaration: Declaration) -> ScalarType | None:
    """Return the scalar type of a type name, resolving typedefs; None for other types."""
    while kind not in _SCALARS and (typedef := declaration.typedef(kind)):
        kind = _unqualified(typedef[1:-1])
    return _SCALARS.get(kind)


def _members(typedef: Sequence[str], declaration: Declaration) -> Iterator[StructMember]:
    """Yield the members of a typedef of a struct of scalars; none for other typedefs."""
    if "{" not in typedef:
        return
    for declared in _separated(typedef[typedef.index("{") + 1 : -2], ";"):
        first, *others = _separated(declared, ",")
        array = first.index("[") if "[" in first else len(first)
        kind = _scalar(" ".join(first[: array - 1]), declaration)
        if kind is None:
            raise ValueError(f"the member {' '.join(declared)!r} of the struct {typedef[-1]} is not a scalar")
        for words in (first[array - 1 :], *others):
            yield StructMember(words[0], kind, evaluate(tuple(words[2:-1])) if len(words) > 1 else 0)


def _separated(tokens: Sequence[str], separator: str) -> list[list[str]]:
    """Return the pieces between separators that are not in parentheses."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == separator and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return [piece for piece in found if piece]
