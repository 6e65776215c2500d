"""PTX rewriting: adds options that NVIDIA's OpenCL compiler lacks to the PTX that it generates.

The compiler checks inline assembly against the plain architecture (sm_90), although the device also runs the extended
one (sm_90a), whose instructions make Hopper's tensor cores twice as fast. Kernels write those instructions as comments
that begin with `//sm_90a `; rewriting turns them into code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCHITECTURE = re.compile(rb"^(\.target\s+)(sm_\d+)\b", re.MULTILINE)
_GROUP_SIZE = re.compile(rb"^(\.reqntid [^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """Compilation target of a program, beyond the compiler's own options."""

    architecture: str = ""
    """Architecture such as `sm_90a`, whose comments become instructions; empty for the compiler's choice."""
    groups: int = 0
    """Groups that should be resident on a compute unit, which limits their registers; 0 for the compiler's choice."""
    cluster: int = 1
    """Groups of a cluster along the first axis; more than 1 only for devices with `KernelFeatures.clusters`."""
    whole: bool = False
    """True to assemble a whole program instead of relocatable code, in the CUDA backend. OpenCL programs always are whole."""

    @property
    def rewrites(self) -> bool:
        """True if `retarget` changes PTX."""
        return bool(self.architecture or self.groups or self.cluster > 1)


HOPPER = 90
"""Compute capability (times ten) of Hopper, the only one with wgmma."""
EXTENDED_HOPPER = Target("sm_90a")
WHOLE_PROGRAM = Target(whole=True)
"""Target of kernels that are slower as relocatable code: sorts and reductions, on an H200 by 1.05 to 1.16. A matrix by a
vector of float32 is faster as relocatable code, by 1.16."""


def retarget(ptx: bytes, target: Target) -> bytes:
    """Return the PTX rewritten for a target."""
    text = ptx.rstrip(b"\0")
    if target.architecture:
        name = target.architecture.encode()
        text = _ARCHITECTURE.sub(rb"\g<1>" + name, text).replace(b"//" + name + b" ", b"")
    if target.groups:
        text = _GROUP_SIZE.sub(rb"\g<1>\n.minnctapersm %d" % target.groups, text)
    if target.cluster > 1:
        text = _GROUP_SIZE.sub(rb"\g<1>\n.explicitcluster\n.reqnctapercluster %d, 1, 1" % target.cluster, text)
    return text
