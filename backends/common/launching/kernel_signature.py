"""The parameters of kernels, read from their source: names, and what each may be bound to.

OpenCL C and CUDA C are read alike. A struct that is passed by value is written `typedef struct { ... } Name;` with scalar
members, which the host fills by name. So that every compiler lays it out alike, members of 8 bytes come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from polyhal.backends.common.codegen.preprocessor import Declarations
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import ScalarType

NUMPY_TYPES: dict[ScalarType, type[np.generic]] = {
    "int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64, "float": np.float32, "double": np.float64,
}  # fmt: skip
_SCALARS: dict[str, ScalarType] = {
    "int": "int", "uint": "uint", "long": "long", "ulong": "ulong", "float": "float", "double": "double",
    "unsigned": "uint", "unsigned int": "uint", "unsigned long": "ulong", "long long": "long",
    "unsigned long long": "ulong",
}  # fmt: skip
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict__", "private", "__private"})
_MEMORY = {"__global": "global", "global": "global", "__constant": "global", "__local": "local", "local": "local"}


@dataclass(frozen=True, slots=True)
class StructMember:
    """A scalar in a struct, or an array of `length` of them."""

    name: str
    type: ScalarType
    length: int = 0


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """A parameter. `type` is that of scalars, else None; `members` are those of a struct."""

    name: str
    kind: Literal["global", "local", "scalar", "struct"]
    type: ScalarType | None = None
    members: tuple[StructMember, ...] = ()


@dataclass(frozen=True)
class KernelSignature:
    """The parameters of a kernel of a file."""

    file: str
    kernel: str
    parameters: tuple[KernelParameter, ...]

    @cached_property
    def names(self) -> dict[str, KernelParameter | StructMember]:
        """Parameters and the members of structs by name."""
        members: dict[str, KernelParameter | StructMember] = {m.name: m for p in self.parameters for m in p.members}
        return members | {p.name: p for p in self.parameters}

    @cached_property
    def structs(self) -> dict[str, np.dtype[np.void]]:
        """The layout of each struct, by the parameter's name."""
        return {p.name: struct_layout(p.members) for p in self.parameters if p.members}


_Types = dict[str, ScalarType | tuple[StructMember, ...]]


class KernelSignatures:
    """The signatures of the kernels in a folder."""

    def __init__(self, read: Callable[[str], str], kernel_words: str = "__kernel") -> None:
        """`read` gives a file's text; the pattern `kernel_words` matches the words that begin a kernel."""
        self._declarations = Declarations(read, kernel_words)

    def forget(self) -> None:
        """Read all files again."""
        self._declarations.forget()

    def of(self, file: str, kernel: str, definitions: Definitions) -> KernelSignature:
        """The signature of a kernel with these definitions. Raises ValueError where it cannot be read."""
        signature = self.kernels(file, definitions).get(kernel)
        if signature is None:
            raise ValueError(f"{file} has no kernel {kernel}")
        return signature

    def kernels(self, file: str, definitions: Definitions) -> dict[str, KernelSignature]:
        """The signatures of all kernels of a file by name. Raises ValueError where one cannot be read."""
        types: _Types = dict(_SCALARS)
        found: dict[str, KernelSignature] = {}
        for tokens in self._declarations.of(file, definitions):
            if tokens[0] == "typedef":
                _define(tokens, types)
            else:
                name = tokens[_opening(tokens) - 1]
                found[name] = KernelSignature(file, name, tuple(_parameters(tokens, types)))
        return found


def struct_layout(members: Sequence[StructMember]) -> np.dtype[np.void]:
    """The struct's layout, without padding but at its end."""
    fields = [
        (m.name, NUMPY_TYPES[m.type], (m.length,)) if m.length else (m.name, NUMPY_TYPES[m.type]) for m in members
    ]
    return np.dtype(fields, align=True)


def _opening(tokens: Sequence[str]) -> int:
    """Where the parameter list begins: the last parenthesis that is in no other."""
    depth = 0
    for at in range(len(tokens) - 1, -1, -1):
        depth += (tokens[at] == ")") - (tokens[at] == "(")
        if tokens[at] == "(" and not depth:
            return at
    raise ValueError(f"no parameter list in {' '.join(tokens)}")


def _parameters(tokens: list[str], types: _Types) -> Iterator[KernelParameter]:
    for declaration in _separated(tokens[_opening(tokens) + 1 : -1], ","):
        words = [t for t in declaration if t not in _QUALIFIERS]
        name = words.pop()
        if "*" in words:
            memory = next((_MEMORY[w] for w in words if w in _MEMORY), "global")
            yield KernelParameter(name, "local" if memory == "local" else "global")
            continue
        declared = types.get(" ".join(words))
        if isinstance(declared, tuple):
            sizes = [np.dtype(NUMPY_TYPES[m.type]).itemsize for m in declared]
            if sizes != sorted(sizes, reverse=True):
                raise ValueError(f"members of 8 bytes must come first in the struct of the parameter {name}")
            yield KernelParameter(name, "struct", members=declared)
        elif declared is not None:
            yield KernelParameter(name, "scalar", declared)
        else:
            raise ValueError(f"the type {' '.join(words)!r} of the parameter {name} is no scalar or struct of scalars")


def _define(tokens: list[str], types: _Types) -> None:
    """Note a typedef of a scalar or of a struct of scalars; others are of no use in signatures."""
    name = tokens[-1]
    if "{" not in tokens:
        declared = types.get(" ".join(t for t in tokens[1:-1] if t not in _QUALIFIERS))
        if declared is not None:
            types[name] = declared
        return
    members: list[StructMember] = []
    for declaration in _separated(tokens[tokens.index("{") + 1 : -2], ";"):
        first, *others = _separated(declaration, ",")
        array = first.index("[") if "[" in first else len(first)
        kind = types.get(" ".join(first[: array - 1]))
        if not isinstance(kind, str):
            return
        for words in (first[array - 1 :], *others):
            members.append(StructMember(words[0], kind, int(words[2]) if len(words) > 1 else 0))
    types[name] = tuple(members)


def _separated(tokens: Sequence[str], separator: str) -> list[list[str]]:
    """The pieces between separators that are in no parentheses."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == separator and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return [piece for piece in found if piece]
