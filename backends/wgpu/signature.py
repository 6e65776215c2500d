"""The parameters of a shader, read from its rendered text: the buffers of group 0 and the members of the struct `Parameters`.

A 64-bit integer `x` is two members, `x_low` and `x_high`, because WGSL has no 64-bit integers without an extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyhal.backends.common.launching.kernel_signature import KernelParameter, KernelSignature
from polyhal.backends.common.launching.launch import ScalarType

_BINDING = re.compile(r"@group\(0\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+)")
_TYPE = re.compile(r"@group\(0\) @binding\(\d+\) var<storage, \w+> (\w+):([^;]+);")
_STRUCT = re.compile(r"\bstruct Parameters \{([^}]*)\}")
_SCALARS: dict[str, ScalarType] = {"u32": "uint", "i32": "int", "f32": "float"}
_LOW, _HIGH = "_low", "_high"


def binding_access(text: str) -> dict[int, str]:
    """Return "read" or "read_write" by binding, in the order of the bindings."""
    return dict(sorted((int(number), access) for number, access, _ in _BINDING.findall(text)))


def element_types(text: str) -> dict[str, str]:
    """Return the type of each buffer by name."""
    return {name: kind.strip() for name, kind in _TYPE.findall(text)}


def written(text: str) -> frozenset[int]:
    """Return the bindings that a shader may write."""
    return frozenset(n for n, access in binding_access(text).items() if access == "read_write")


def read_signature(source: str, text: str, *, gaps: bool = False) -> KernelSignature:
    """Return the signature of shaders/wgsl/`source`.wgsl from its rendered text: buffers by binding, then the struct's members.

    The kernel's name is the path with `_` for `/`. With `gaps`, numbers of bindings may be left out, as in variants whose
    inputs share the bindings of outputs. Raises ValueError if it cannot be read.
    """
    buffers = sorted((int(number), name) for number, _, name in _BINDING.findall(text))
    if not gaps and [number for number, _ in buffers] != list(range(len(buffers))):
        raise ValueError(f"the bindings of {source} are {buffers}; expected 0, 1, ...")
    parameters = [KernelParameter(name, "global") for _, name in buffers]
    struct = _STRUCT.search(text)
    members = _members(struct[1]) if struct else ()
    return KernelSignature(f"{source}.wgsl", source.replace("/", "_"), (*parameters, *members))


def parameter_bytes(signature: KernelSignature) -> int:
    """Return the size of the struct `Parameters`."""
    return sum(8 if p.type == "ulong" else 4 for p in signature.parameters if p.kind == "scalar")


def _members(text: str) -> Iterator[KernelParameter]:
    declared = [member.split(":") for member in re.sub(r"\s", "", text).split(",") if member]
    at = 0
    while at < len(declared):
        name, kind = declared[at]
        whole = name.removesuffix(_LOW)
        if kind not in _SCALARS:
            raise ValueError(f"the member {name} of Parameters has the type {kind}; expected u32, i32 or f32")
        if name != whole and declared[at + 1 : at + 2] == [[whole + _HIGH, kind]]:
            yield KernelParameter(whole, "scalar", "ulong")
            at += 2
        else:
            yield KernelParameter(name, "scalar", _SCALARS[kind])
            at += 1
