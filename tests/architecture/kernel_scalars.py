"""Parse the scalar parameters of OpenCL kernels from their source."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from polyhal.backends.common.launching.kernel_signature import KernelSignatures

_KERNELS = (".cl", ".h")
_INCLUDE = re.compile(r'#include "([^"]+)"')
_FLAG = re.compile(r"^#ifndef (\w+)\n#define \1 ([01])$", re.MULTILINE)


def kernel_scalars(shaders: Path) -> dict[str, int]:
    """Return, for each kernel of a folder of OpenCL files, the most scalars that it takes, offsets of tensors included.

    Parameters depend on macros: each file is read with its defaults, and with each of its flags switched. Files that the parser
    of signatures refuses, as there are in old checkouts, are left out.
    """
    texts = {
        str(p.relative_to(shaders)): p.read_text(encoding="utf-8") for p in shaders.rglob("*.*") if p.suffix in _KERNELS
    }
    signatures = KernelSignatures(texts.__getitem__)
    most: dict[str, int] = {}
    for name in sorted(n for n in texts if n.endswith(".cl")):
        flags = {flag: int(value) for file in _included(name, texts) for flag, value in _FLAG.findall(texts[file])}
        variants: list[dict[str, str | int | bool]] = [{}, *({flag: 1 - value} for flag, value in flags.items())]
        for definitions in variants:
            with contextlib.suppress(ValueError):
                for kernel in signatures.kernels(name, definitions):
                    scalars = sum(p.kind == "scalar" for p in kernel.parameters)
                    key = f"{name} {kernel.kernel}"
                    most[key] = max(scalars, most.get(key, 0))
    return most


def _included(name: str, texts: Mapping[str, str]) -> set[str]:
    """Yield a file and all files that it includes, recursively."""
    files, pending = {name}, [name]
    while pending:
        new = set(_INCLUDE.findall(texts[pending.pop()])) - files
        files |= new
        pending += new
    return files
