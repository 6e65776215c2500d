"""What NVIDIA's OpenCL compiler cannot be told: written into the PTX that it makes, from which the driver makes the program.

Inline assembly is checked for the plain architecture (sm_90), although the device also runs the extended one (sm_90a), whose
instructions make the tensor cores of Hopper twice as fast. A kernel writes them as comments that begin with `//sm_90a `.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCHITECTURE = re.compile(rb"^(\.target\s+)(sm_\d+)\b", re.MULTILINE)
_GROUP = re.compile(rb"^(\.reqntid [^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """What a program is made for."""

    architecture: str = ""
    """Such as `sm_90a`, whose comments become instructions; empty: the one that the compiler chose."""
    groups: int = 0
    """Groups that are to fit on a compute unit at once, which limits their registers; 0: as the compiler likes."""


HOPPER = 90
"""Compute capability times ten. wgmma exists there and nowhere else."""
EXTENDED_HOPPER = Target("sm_90a")


def rewritten(ptx: bytes, target: Target) -> bytes:
    """PTX for a target."""
    text = ptx.rstrip(b"\0")
    if target.architecture:
        name = target.architecture.encode()
        text = _ARCHITECTURE.sub(rb"\g<1>" + name, text).replace(b"//" + name + b" ", b"")
    if target.groups:
        text = _GROUP.sub(rb"\g<1>\n.minnctapersm %d" % target.groups, text)
    return text
