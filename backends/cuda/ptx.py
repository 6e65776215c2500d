"""PTX rewriting: the output of NVIDIA's OpenCL compiler, made to run on the CUDA driver.

An OpenCL launch fills special registers that a CUDA launch leaves undefined: `%envreg0` to `%envreg2` with the offset of the
group ids, `%envreg3` to `%envreg5` with the global offset, `%envreg6` to `%envreg8` with the number of groups and `%envreg9`
with the number of axes. Polyhal's launches have no offsets.

Comments that begin with `//cuda ` become instructions for the architectures that have them, compute capability 9.0 and later:
they are without effect in launches of OpenCL.

A kernel may declare 48 KiB of shared memory for the CUDA driver and more for the OpenCL driver. Larger arrays become parts of
dynamic shared memory, whose size is given at the launch.

Source: PTX ISA, sections "Special registers: %envreg<32>" and "Kernel and Function Directives: .shared".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.cuda import grids

_TEXTURE_MODE = re.compile(rb"^(\.target\s[^\n]*?),\s*texmode_independent", re.MULTILINE)
_ENVIRONMENT = re.compile(rb"%envreg(\d+)\b")
_GROUPS = {b"6": b"%nctaid.x", b"7": b"%nctaid.y", b"8": b"%nctaid.z", b"9": b"3"}
_ENTRY = re.compile(
    rb"^[ \t]*(?:\.\w+\s+)?\.entry\s+([\w$]+)\s*\(.*?(?=^[ \t]*(?:\.\w+\s+)?\.(?:entry|func)\b|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A kernel, up to the next one: inline assembly may have lines that begin with a brace."""
_SHARED = re.compile(rb"^[ \t]*\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\];[^\n]*\n", re.MULTILINE)
_DYNAMIC = b"polyhal_shared"
_COMMENT = b"//cuda "
_CAPABILITY = re.compile(rb"^\.target\s+sm_(\d+)", re.MULTILINE)
_DEPENDENT = 90
"""Least compute capability, times ten, with dependent launches."""
_AWAIT = b"griddepcontrol.wait;"
_ADDRESS_SIZE = re.compile(rb"^\.address_size[^\n]*\n", re.MULTILINE)
STATIC_SHARED = 48 << 10
"""Maximum bytes of shared memory that a kernel may declare; a launch may ask for more."""


class CudaCode(NamedTuple):
    """PTX with a final zero, and facts about its kernels for their launches."""

    text: bytes
    shared: dict[str, int]
    """Bytes of shared memory that launches of some kernels have to request."""
    dependent: frozenset[str]
    """Kernels that await their inputs themselves, so that they may start before the kernel in front of them ends."""


def for_cuda(ptx: bytes, *, folded: bool = False) -> CudaCode:
    """Return the PTX of an OpenCL program in the form that the CUDA driver loads, for folded grids if so asked."""
    text = _TEXTURE_MODE.sub(rb"\1", ptx.rstrip(b"\0"))
    text = _ENVIRONMENT.sub(lambda m: _GROUPS.get(m[1], b"0"), text)
    capability = _CAPABILITY.search(text)
    if capability and int(capability[1]) >= _DEPENDENT:
        text = text.replace(_COMMENT, b"")
    shared: dict[str, int] = {}
    dependent: set[str] = set()
    alignments = [1]

    def entry(found: re.Match[bytes]) -> bytes:
        body = found[0]
        if _AWAIT in body.replace(_COMMENT + _AWAIT, b""):
            dependent.add(found[1].decode())
        arrays = [(int(m[1]), m[2], int(m[3])) for m in _SHARED.finditer(body)]
        if sum(size for _, _, size in arrays) <= STATIC_SHARED:
            return body
        body, end = _SHARED.sub(b"", body), 0
        for alignment, name, size in arrays:
            start = round_up(end, alignment)
            body = _with_address(body, name, start)
            end = start + size
            alignments.append(alignment)
        shared[found[1].decode()] = end
        return body

    text = _ENTRY.sub(entry, text)
    if folded:
        text = _ENTRY.sub(lambda m: grids.folded(m[0]), text)
    if shared:
        declaration = b".extern .shared .align %d .b8 %s[];\n" % (max(alignments), _DYNAMIC)
        text = _ADDRESS_SIZE.sub(lambda m: m[0] + declaration, text, count=1)
    return CudaCode(text + b"\0", shared, frozenset(dependent))


def _with_address(body: bytes, name: bytes, start: int) -> bytes:
    """Return the body of a kernel with a place in dynamic shared memory instead of the array `name`."""
    use = re.compile(rb"(?<![\w$])" + re.escape(name) + rb"(?![\w$])(?:\s*\+\s*(\d+))?")
    return use.sub(lambda m: b"%s+%d" % (_DYNAMIC, start + int(m[1] or 0)), body)
