"""The processor of this machine, as the system describes it."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def model() -> str:
    """Return the processor's model, as the system calls it."""
    return _described("model name", "Model", "cpu model") or platform.processor() or platform.machine()


def instruction_sets() -> frozenset[str]:
    """Return the extensions of an x86 processor that the system knows, such as `avx512f`; none where it does not tell."""
    return frozenset(_described("flags").split())


def _described(*labels: str) -> str:
    """The first value in the system's description that has one of these labels."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in _CPUINFO.read_text(encoding="utf-8").splitlines():
            label, _, value = line.partition(":")
            if label.strip() in labels:
                return value.strip()
    return ""
