"""Every environment variable that Polyhal reads, in one place."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


def default_device() -> str | None:
    """POLYHAL_DEVICE: the device that `Device.default()` must return, for instance `opencl:1`."""
    return os.environ.get("POLYHAL_DEVICE") or None


def cache_dir() -> Path:
    """POLYHAL_CACHE_DIR: where compiled programs and measurements are kept; the platform's cache folder otherwise."""
    named = os.environ.get("POLYHAL_CACHE_DIR")
    return Path(named) if named else Path(platformdirs.user_cache_dir("polyhal", appauthor=False))


def fallback_policy() -> str:
    """POLYHAL_FALLBACK: `error`, `warn` (default) or `allow` ops that a device can only run on the host."""
    value = os.environ.get("POLYHAL_FALLBACK", "warn").lower()
    if value not in ("error", "warn", "allow"):
        raise ValueError(f"POLYHAL_FALLBACK is {value!r}; expected error, warn or allow")
    return value


def disabled_backends() -> frozenset[str]:
    """POLYHAL_DISABLE: comma-separated backend names that are not looked for."""
    return frozenset(n.strip() for n in os.environ.get("POLYHAL_DISABLE", "").split(",") if n.strip())


def no_program_cache() -> bool:
    """POLYHAL_NO_PROGRAM_CACHE: compile kernels anew in every process."""
    return _flag("POLYHAL_NO_PROGRAM_CACHE")


def debug() -> bool:
    """POLYHAL_DEBUG: full tracebacks in the command line."""
    return _flag("POLYHAL_DEBUG")
