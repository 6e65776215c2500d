"""The processor of this machine, as described by the system."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def model() -> str:
    """Return the processor's model, as named by the system."""
    return _described("model name", "Model", "cpu model") or platform.processor() or platform.machine()


def instruction_sets() -> frozenset[str]:
    """Return the extensions of an x86 processor, such as `avx512f`; none if the system does not report them."""
    return frozenset(_described("flags").split())


def _described(*labels: str) -> str:
    """Return the first value in the system's description with one of the labels."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            label, _, value = line.partition(":")
            if label.strip() in labels:
                return value.strip()
    return ""
