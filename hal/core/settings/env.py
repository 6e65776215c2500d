"""All environment variables that Polyhal reads."""

from __future__ import annotations

import atexit
import functools
import math
import os
import warnings
from pathlib import Path

from polyhal.hal.core.settings import trust
from polyhal.hal.errors import SettingError, message


def _flag(name: str) -> bool:
    return os.environ.get(name, "").lower() not in ("", "0", "false", "no", "off")


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise SettingError(f"{name} is {text!r}; expected a number of seconds, 0 or more")
    return value


def default_device() -> str | None:
    """POLYHAL_DEVICE: the device that `Device.default()` must return, for instance `opencl:1`."""
    return os.environ.get("POLYHAL_DEVICE") or None


def cache_dir() -> Path:
    """POLYHAL_CACHE_DIR: folder of compiled programs and measurements; the platform's cache folder by default."""
    import platformdirs

    named = os.environ.get("POLYHAL_CACHE_DIR")
    return _trusted(Path(named) if named else Path(platformdirs.user_cache_dir("polyhal", appauthor=False)))


def kernels_dir() -> Path:
    """POLYHAL_KERNELS: folder of kernels changed by the user; in the platform's configuration folder by default."""
    import platformdirs

    named = os.environ.get("POLYHAL_KERNELS")
    return _trusted(
        Path(named) if named else Path(platformdirs.user_config_dir("polyhal", appauthor=False)) / "kernels"
    )


@functools.lru_cache(maxsize=64)
def _trusted(folder: Path) -> Path:
    """Return the folder, or, if other users may have written to it, a new one that is deleted at the end of the process."""
    problem = trust.distrust(folder)
    if not problem:
        return folder
    import shutil
    import tempfile

    substitute = tempfile.mkdtemp(prefix="polyhal-")
    atexit.register(shutil.rmtree, substitute, ignore_errors=True)
    fix = f"remove {folder}, or set POLYHAL_CACHE_DIR or POLYHAL_KERNELS to a folder of your own"
    warnings.warn(message(None, f"{problem}: a new folder is used in this process", fix=fix), stacklevel=3)
    return Path(substitute)


def fallback_policy() -> str:
    """POLYHAL_FALLBACK: `error`, `warn` (default) or `allow` ops that run on the host.

    `declared` allows ops that are declared to run there, and is an error for others.
    """
    value = os.environ.get("POLYHAL_FALLBACK", "warn").lower()
    if value not in ("error", "warn", "allow", "declared"):
        raise SettingError(f"POLYHAL_FALLBACK is {value!r}; expected error, warn, allow or declared")
    return value


def disabled_backends() -> frozenset[str]:
    """POLYHAL_DISABLE: comma-separated names of backends, and of plug-ins with ops, to ignore."""
    return frozenset(n.strip() for n in os.environ.get("POLYHAL_DISABLE", "").split(",") if n.strip())


def opengl() -> bool:
    """POLYHAL_OPENGL: 1 also lists the OpenGL adapters of wgpu; their drivers may crash programs that load an LLVM later."""
    return _flag("POLYHAL_OPENGL")


def probe_timeout() -> float:
    """POLYHAL_PROBE_TIMEOUT: maximum seconds to load a plug-in, and again to list its devices; 10 by default."""
    return _seconds("POLYHAL_PROBE_TIMEOUT", 10.0)


def trials() -> bool:
    """POLYHAL_TRIALS: 0 loads and probes new plug-ins in the program itself, without a trial in another process."""
    return os.environ.get("POLYHAL_TRIALS", "1") not in ("", "0")


def measure_timeout() -> float:
    """POLYHAL_MEASURE_TIMEOUT: maximum seconds to measure one device, 30 by default; 0 disables measured figures."""
    return _seconds("POLYHAL_MEASURE_TIMEOUT", 30.0)


def no_program_cache() -> bool:
    """POLYHAL_NO_PROGRAM_CACHE: recompile kernels in every process."""
    return _flag("POLYHAL_NO_PROGRAM_CACHE")


def build_ahead() -> bool:
    """POLYHAL_BUILD_AHEAD: 0 disables the helper processes that compile kernels ahead of their first use."""
    return os.environ.get("POLYHAL_BUILD_AHEAD", "1") not in ("", "0")


def builds_only() -> bool:
    """POLYHAL_BUILDS_ONLY: set in helper processes, which run each kernel once so that drivers compile it."""
    return _flag("POLYHAL_BUILDS_ONLY")


def strict() -> bool:
    """POLYHAL_STRICT: raise if a native kernel does not build, instead of a warning and a slower implementation."""
    return _flag("POLYHAL_STRICT")


def debug() -> bool:
    """POLYHAL_DEBUG: debug mode, in which indices are checked on every device; full tracebacks in the command line."""
    return _flag("POLYHAL_DEBUG")


def log(topics: tuple[str, ...]) -> tuple[str, ...]:
    """POLYHAL_LOG: comma-separated topics whose messages are printed to standard error, or all of them."""
    text = os.environ.get("POLYHAL_LOG", "")
    names = [n.strip() for n in text.split(",") if n.strip()]
    if any(n not in (*topics, "all") for n in names):
        raise SettingError(f"POLYHAL_LOG is {text!r}; expected {', '.join(topics)}, separated by commas, or all")
    return tuple(t for t in topics if t in names or "all" in names)


CHECKS = ("nan", "bounds", "reference", "gradients")
"""Checks of `polyhal.check`."""


def checks() -> tuple[str, ...]:
    """POLYHAL_CHECK: comma-separated checks of every launch: nan, bounds, reference, gradients, or all of them."""
    text = os.environ.get("POLYHAL_CHECK", "")
    names = [n.strip() for n in text.split(",") if n.strip()]
    unknown = [n for n in names if n not in (*CHECKS, "all")]
    if unknown:
        raise SettingError(f"POLYHAL_CHECK is {text!r}; expected {', '.join(CHECKS)}, separated by commas, or all")
    return tuple(n for n in CHECKS if n in names or "all" in names)


def units() -> tuple[str, ...]:
    """POLYHAL_UNITS: comma-separated matrix units, all or none: only these are used, regardless of their certificates."""
    return tuple(n.strip() for n in os.environ.get("POLYHAL_UNITS", "").split(",") if n.strip())


def watchdog() -> float:
    """POLYHAL_WATCHDOG: seconds after which a kernel that is not done is reported by name; 0, the default, does not watch."""
    return _seconds("POLYHAL_WATCHDOG", 0.0)


def hub() -> str | None:
    """POLYHAL_HUB: set by `polyhal launch` in the processes that it starts: address to which they report their end."""
    return os.environ.get("POLYHAL_HUB") or None


def launch_command() -> str | None:
    """POLYHAL_LAUNCH: set by `polyhal launch`: the command line before the program, for messages that show how to continue."""
    return os.environ.get("POLYHAL_LAUNCH") or None


def rank_devices() -> tuple[str, ...]:
    """POLYHAL_RANK_DEVICES: comma-separated devices, assigned to the ranks of a machine in turn."""
    return tuple(n.strip() for n in os.environ.get("POLYHAL_RANK_DEVICES", "").split(",") if n.strip())


def restarts() -> int:
    """POLYHAL_RESTARTS: set by `polyhal launch`: number of restarts of the job."""
    text = os.environ.get("POLYHAL_RESTARTS", "0")
    return int(text) if text.isdigit() else 0


def collective_timeout() -> float:
    """POLYHAL_COLLECTIVE_TIMEOUT: seconds that a rank waits for others in a call; 1800 by default, 0 waits indefinitely."""
    return _seconds("POLYHAL_COLLECTIVE_TIMEOUT", 1800.0)
