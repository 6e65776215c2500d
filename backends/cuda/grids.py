"""Grids: blocks on three axes, folded into the first axis where a launch exceeds the driver's limits of the others.

OpenCL launches may have any number of groups on each axis, and NVIDIA's OpenCL driver splits them. The CUDA driver accepts
65,535 blocks on the second and third axis. A folded launch has all of its blocks on the first axis, and its kernel computes the
three indices from that one, by the numbers of blocks that it receives as one more argument.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; PTX ISA, "Special registers: %ctaid".
"""

from __future__ import annotations

import re
import struct

LIMITS = (2**31 - 1, 65535, 65535)
"""Maximum blocks on each axis, the same on all devices since compute capability 3.0."""
_PARAMETER = b"polyhal_grid"
_END_OF_PARAMETERS = re.compile(rb"(\S?)\s*\)")
_BODY = re.compile(rb"^[ \t]*\{[^\n]*\n", re.MULTILINE)
_REGISTER = re.compile(rb"%(n?)ctaid\.([xyz])")
_INDICES = b"""\
	.reg .b32 	%polyhal_grid<8>;
	mov.u32 	%polyhal_grid0, %ctaid.x;
	ld.param.u32 	%polyhal_grid1, [polyhal_grid];
	ld.param.u32 	%polyhal_grid2, [polyhal_grid+4];
	ld.param.u32 	%polyhal_grid3, [polyhal_grid+8];
	rem.u32 	%polyhal_grid4, %polyhal_grid0, %polyhal_grid1;
	div.u32 	%polyhal_grid7, %polyhal_grid0, %polyhal_grid1;
	rem.u32 	%polyhal_grid5, %polyhal_grid7, %polyhal_grid2;
	div.u32 	%polyhal_grid6, %polyhal_grid7, %polyhal_grid2;
"""
_NUMBERS, _FIRST = {b"x": 1, b"y": 2, b"z": 3}, 3
"""Registers with the numbers of blocks on each axis; the block's own indices are in the third next registers."""


def blocks(items: tuple[int, ...], group: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the blocks of a grid; `items` is a multiple of `group`."""
    x, y, z = (*(n // g for n, g in zip(items, group, strict=True)), *(1,) * (3 - len(group)))
    return x, y, z


def must_fold(items: tuple[int, ...], group: tuple[int, ...]) -> bool:
    """Return whether a launch has more blocks than the driver accepts on an axis."""
    return any(n > most for n, most in zip(blocks(items, group), LIMITS, strict=True))


def numbers(grid: tuple[int, int, int]) -> bytes:
    """Return the additional argument of a folded launch."""
    return struct.pack("<3I", *grid)


def folded(entry: bytes) -> bytes:
    """Return a kernel that runs in a folded grid, with one more parameter. `entry` is the PTX of one kernel."""
    declaration = b"\t.param .align 4 .b8 %s[12]\n)" % _PARAMETER
    opened = entry.index(b"(") + 1
    head, end = entry[:opened], _END_OF_PARAMETERS.search(entry, opened)
    body = _BODY.search(entry, opened)
    if end is None or body is None:
        raise ValueError(f"expected a kernel in PTX, got {entry[:80]!r}")
    parameters, separator = entry[opened : end.end(1)], b",\n" if end[1] else b"\n"
    between, code = entry[end.end() : body.end()], entry[body.end() :]
    code = _REGISTER.sub(lambda m: b"%%polyhal_grid%d" % (_NUMBERS[m[2]] + (0 if m[1] else _FIRST)), code)
    return b"".join((head, parameters, separator, declaration, between, _INDICES, code))
