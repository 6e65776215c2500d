"""Shaders launched on a described adapter, checked against its limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from polyhal.backends.wgpu.parameter_ring import MAX_PARAMETER_WORDS

_SIZES = {"u32": 4, "i32": 4, "f32": 4, "f16": 2, "u64": 8, "i64": 8}
_GROUP = re.compile(r"@workgroup_size\(([\d\s,]+)\)")
_WORKGROUP = re.compile(r"\bvar<workgroup>\s+\w+\s*:\s*([^;]+);")
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+?)\s*;")
_ARRAY = re.compile(r"array<(.+),\s*(\d+)\s*>")
_VECTOR = re.compile(r"vec([234])<(\w+)>")
_ATOMIC = re.compile(r"atomic<(\w+)>")
_LATER_AXES = (256, 64)
"""Maximum invocations along y and z: WebGPU's defaults, which are not raised."""
_NEEDS: dict[str, tuple[Sequence[str], re.Pattern[str]]] = {
    "shader-f16": (("f16",), re.compile(r"\bf16\b")),
    "shader-int64": (
        ("i64", "u64", *(f"{digit}l{sign}" for digit in range(10) for sign in "iu")),
        re.compile(r"\b[iu]64\b|\d+l[iu]\b"),
    ),
    "shader-float32-atomic": (("atomic<f32>",), re.compile(r"\batomic<f32>")),
    "subgroup": (("subgroup",), re.compile(r"\bsubgroup[A-Z]|\bsubgroup_")),
    "immediates": (("var<immediate>",), re.compile(r"\bvar<immediate>")),
}
"""Pattern of shader text that requires a feature, by feature, with substrings for a fast pre-check."""


@dataclass(frozen=True)
class NotedShader:
    """A shader as it would be compiled."""

    file: str
    kernel: str
    definitions: tuple[tuple[str, str | int | bool], ...]
    text: str
    buffers: int
    """Number of storage buffers."""
    parameter_bytes: int

    @cached_property
    def group(self) -> tuple[int, ...]:
        """Invocations along each axis. Raises ValueError if they are not literal numbers."""
        found = _GROUP.search(self.text)
        if found is None:
            raise ValueError(f"{self.file} has no @workgroup_size with literal numbers")
        return tuple(int(n) for n in found[1].split(",") if n.strip())

    @cached_property
    def workgroup_memory(self) -> int:
        """Bytes of all workgroup variables. Raises ValueError for an unknown type."""
        aliases = dict(_ALIAS.findall(self.text))
        return sum(-(-_size(kind.strip(), aliases) // 16) * 16 for kind in _WORKGROUP.findall(self.text))

    def violations(self, features: Collection[str], limits: Mapping[str, int]) -> Iterator[str]:
        """Yield the requirements that an adapter with these features and limits does not meet."""
        group = self.group
        size, along_x = prod(group), limits["max-compute-workgroup-size-x"]
        for needed, (parts, pattern) in _NEEDS.items():
            if needed not in features and any(p in self.text for p in parts) and pattern.search(self.text):
                yield f"the feature {needed}, which the adapter lacks"
        if size > (most := limits["max-compute-invocations-per-workgroup"]):
            yield f"a group of {size} invocations, above the adapter's limit of {most}"
        if any(n > limit for n, limit in zip(group, (along_x, *_LATER_AXES), strict=False)):
            yield f"a group of {group}, above the adapter's limit of {(along_x, *_LATER_AXES)} per axis"
        if self.workgroup_memory > (most := limits["max-compute-workgroup-storage-size"]):
            yield f"{self.workgroup_memory} bytes of workgroup memory, above the adapter's limit of {most}"
        if self.buffers > (most := limits["max-storage-buffers-per-shader-stage"]):
            yield f"{self.buffers} storage buffers, above the adapter's limit of {most}"
        most = limits.get("max-immediate-size", 0) if "var<immediate>" in self.text else 4 * MAX_PARAMETER_WORDS
        if self.parameter_bytes > most:
            yield f"{self.parameter_bytes} bytes of parameters, above a launch's limit of {most}"


def _size(kind: str, aliases: Mapping[str, str]) -> int:
    """Return the bytes of a type in workgroup memory. A vector of 3 takes as much as one of 4."""
    if kind in _SIZES:
        return _SIZES[kind]
    if kind in aliases:
        return _size(aliases[kind], aliases)
    if (array := _ARRAY.fullmatch(kind)) is not None:
        return _size(array[1].strip(), aliases) * int(array[2])
    if (vector := _VECTOR.fullmatch(kind)) is not None:
        return _size(vector[2], aliases) * {"2": 2, "3": 4, "4": 4}[vector[1]]
    if (atomic := _ATOMIC.fullmatch(kind)) is not None:
        return _size(atomic[1], aliases)
    raise ValueError(f"unknown type {kind} of a variable in workgroup memory")
