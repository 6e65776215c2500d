"""Completions of the shell: names of devices, cards and ops. A failure completes nothing: a shell shows no messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable


def device_names(incomplete: str) -> list[str]:
    """Return names of devices that begin like `incomplete`, or whose last name does if it is a list with commas."""
    earlier, comma, last = incomplete.rpartition(",")
    return [f"{earlier}{comma}{name}" for name in _matching(last, _devices)]


def simulated_names(incomplete: str) -> list[str]:
    """Return names of simulated devices."""
    return _matching(incomplete, _simulated)


def described_names(incomplete: str) -> list[str]:
    """Return names of cards that can be described."""
    return _matching(incomplete, _cards)


def public_names(incomplete: str) -> list[str]:
    """Return names that `polyhal explain` knows: ops, and public names with the module that was typed."""
    return _matching(incomplete, lambda: _public(incomplete))


def _matching(incomplete: str, names: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that begin like `incomplete`, without messages of drivers, which would disturb the shell."""
    errors, sys.stderr = sys.stderr, None
    try:
        return [name for name in dict.fromkeys(names()) if name.startswith(incomplete)]
    except Exception:
        return []
    finally:
        sys.stderr = errors


def _devices() -> Iterable[str]:
    from polyhal.hal.system.discovery.registry import registry

    yield from (c.name for c in registry().candidates())
    yield from ("cpu", "gpu")
    yield from _simulated()
    yield from (f"described:{name}" for name in _cards())


def _simulated() -> Iterable[str]:
    from polyhal.hal.core.hardware.profile import profile_names

    yield from ("sim", *(f"sim:{name}" for name in profile_names()))


def _cards() -> Iterable[str]:
    from polyhal.hal.core.hardware import catalogue

    return catalogue.names()


def _public(incomplete: str) -> Iterable[str]:
    import importlib

    from polyhal.hal.ops import OPS

    module = incomplete.rpartition(".")[0]
    if module:
        found = importlib.import_module(f"polyhal.{module}")
        return [f"{module}.{name}" for name in getattr(found, "__all__", dir(found)) if not name.startswith("_")]
    import polyhal

    return [*OPS.names(), *(name for name in dir(polyhal) if not name.startswith("_"))]


__all__ = ["described_names", "device_names", "public_names", "simulated_names"]
