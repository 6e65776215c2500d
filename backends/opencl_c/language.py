"""Versions of OpenCL C. Programs are written in 1.2, which every device has; some definitions require a later version."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.codegen.templating import Definitions

EXCHANGE = "EXCHANGE"
BY_LOCAL_MEMORY, BY_SUBGROUPS, BY_WARPS = 0, 1, 2
"""Values of EXCHANGE (see shaders/opencl/lib/group_reduce.h)."""
FLOAT_ATOMICS = "FLOAT_ATOMICS"
ATOMICS = {"cas": 0, "ptx": 1, "ext": 2}
"""Values of FLOAT_ATOMICS (see shaders/opencl/lib/atomic_add.h) by values of `KernelFeatures.float_atomics`."""
_NEWER = {EXCHANGE: BY_SUBGROUPS, FLOAT_ATOMICS: ATOMICS["ext"]}
"""Definitions, and their values, that OpenCL C 1.2 cannot compile."""
_STANDARD = "-cl-std=CL"
BASE = f"{_STANDARD}1.2"
"""Option of the version in which programs are written."""
_BASE_OPTIONS = (BASE, "-w")
"""Language version, and no warnings: some drivers print the count of warnings to stderr for each program.

Errors are still reported.
"""


def options(definitions: Definitions, newest: str) -> tuple[str, ...]:
    """Return the option for a program that needs a newer version than 1.2; empty for other programs."""
    needed = any(definitions.get(name) == value for name, value in _NEWER.items())
    return (f"{_STANDARD}{newest}",) if needed and newest else ()


def flags(options: Sequence[str]) -> list[str]:
    """Return all compiler options of a program, given its additional ones."""
    newer = any(o.startswith(_STANDARD) for o in options)
    return [*(o for o in _BASE_OPTIONS if not (newer and o.startswith(_STANDARD))), *options]
