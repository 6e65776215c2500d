"""Determinism: equal bits for equal calls, on one device with one driver."""

from __future__ import annotations

from polyhal.hal.core.settings.state import settings


def use_deterministic_algorithms(mode: bool) -> None:
    """Accumulate in a fixed order everywhere, even if that is much slower; False by default. A setting of the process.

    Without it, results are reproducible bit for bit except for two gradients that use atomic additions on a GPU: the
    gradient of an embedding, when many rows are added into a small table (up to ten times as fast), and attention's
    gradient with respect to queries in float32 (a quarter faster).
    """
    settings.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """Return the current setting."""
    return settings.deterministic
