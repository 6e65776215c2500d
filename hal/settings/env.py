"""Every environment variable that Polyhal reads, in one place."""

from __future__ import annotations

import math
import os
from pathlib import Path


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise ValueError(f"{name} is {text!r}; expected a number of seconds, 0 or more")
    return value


def default_device() -> str | None:
    """POLYHAL_DEVICE: the device that `Device.default()` must return, for instance `opencl:1`."""
    return os.environ.get("POLYHAL_DEVICE") or None


def cache_dir() -> Path:
    """POLYHAL_CACHE_DIR: where compiled programs and measurements are kept; the platform's cache folder otherwise."""
    import platformdirs

    named = os.environ.get("POLYHAL_CACHE_DIR")
    return Path(named) if named else Path(platformdirs.user_cache_dir("polyhal", appauthor=False))


def kernels_dir() -> Path:
    """POLYHAL_KERNELS: the folder of kernels that you have changed; one in the platform's configuration folder otherwise."""
    import platformdirs

    named = os.environ.get("POLYHAL_KERNELS")
    return Path(named) if named else Path(platformdirs.user_config_dir("polyhal", appauthor=False)) / "kernels"


def fallback_policy() -> str:
    """POLYHAL_FALLBACK: `error`, `warn` (default) or `allow` ops that a device can only run on the host."""
    value = os.environ.get("POLYHAL_FALLBACK", "warn").lower()
    if value not in ("error", "warn", "allow"):
        raise ValueError(f"POLYHAL_FALLBACK is {value!r}; expected error, warn or allow")
    return value


def disabled_backends() -> frozenset[str]:
    """POLYHAL_DISABLE: comma-separated names of backends, and of plug-ins with ops, that are not looked for."""
    return frozenset(n.strip() for n in os.environ.get("POLYHAL_DISABLE", "").split(",") if n.strip())


def probe_timeout() -> float:
    """POLYHAL_PROBE_TIMEOUT: seconds that a plug-in may take to load, and again to list its devices; 10 by default."""
    return _seconds("POLYHAL_PROBE_TIMEOUT", 10.0)


def measure_timeout() -> float:
    """POLYHAL_MEASURE_TIMEOUT: seconds that measuring one device may take, 30 by default; 0 uses no figures."""
    return _seconds("POLYHAL_MEASURE_TIMEOUT", 30.0)


def no_program_cache() -> bool:
    """POLYHAL_NO_PROGRAM_CACHE: compile kernels anew in every process."""
    return _flag("POLYHAL_NO_PROGRAM_CACHE")


def build_ahead() -> bool:
    """POLYHAL_BUILD_AHEAD: 0 starts no helper processes where kernels have to be compiled for the first time."""
    return os.environ.get("POLYHAL_BUILD_AHEAD", "1") not in ("", "0")


def builds_only() -> bool:
    """POLYHAL_BUILDS_ONLY: set in helper processes, whose kernels run once so that drivers compile them."""
    return _flag("POLYHAL_BUILDS_ONLY")


def strict() -> bool:
    """POLYHAL_STRICT: raise where a native kernel does not build, instead of warning and taking a slower way."""
    return _flag("POLYHAL_STRICT")


def debug() -> bool:
    """POLYHAL_DEBUG: debug mode, in which indices are checked on every device; full tracebacks in the command line."""
    return _flag("POLYHAL_DEBUG")
