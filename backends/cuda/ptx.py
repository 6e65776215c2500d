"""PTX rewriting: the output of NVIDIA's OpenCL compiler, made to run on the CUDA driver.

An OpenCL launch fills special registers that a CUDA launch leaves undefined: `%envreg0` to `%envreg2` with the offset of the
group ids, `%envreg3` to `%envreg5` with the global offset, `%envreg6` to `%envreg8` with the number of groups and `%envreg9`
with the number of axes. Polyhal's launches have no offsets. Source: PTX ISA, section "Special registers: %envreg<32>".
"""

from __future__ import annotations

import re

_TEXTURE_MODE = re.compile(rb"^(\.target\s[^\n]*?),\s*texmode_independent", re.MULTILINE)
_ENVIRONMENT = re.compile(rb"%envreg(\d+)\b")
_GROUPS = {b"6": b"%nctaid.x", b"7": b"%nctaid.y", b"8": b"%nctaid.z", b"9": b"3"}
_ENTRY = re.compile(rb"\.entry\s+(\w+)\s*\((.*?)\)", re.DOTALL)
_PARAMETER = re.compile(
    rb"\.param\s+(?:\.align\s+\d+\s+)?\.(\w)(\d+)\s+(?:\.ptr[^,\[]*?\s)?\w+(?:\[(\d+)\])?", re.DOTALL
)


def for_cuda(ptx: bytes) -> bytes:
    """Return the PTX of an OpenCL program in the form that the CUDA driver loads, with a final zero."""
    text = _TEXTURE_MODE.sub(rb"\1", ptx.rstrip(b"\0"))
    return _ENVIRONMENT.sub(lambda m: _GROUPS.get(m[1], b"0"), text) + b"\0"


def parameter_sizes(ptx: bytes) -> dict[str, tuple[int, ...]]:
    """Return the bytes of each parameter of each kernel of a program."""
    return {
        m[1].decode(): tuple(int(p[2]) // 8 * int(p[3] or 1) for p in _PARAMETER.finditer(m[2]))
        for m in _ENTRY.finditer(ptx)
    }
