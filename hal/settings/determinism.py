"""Whether the same call gives the same bits every time, on one device with one driver."""

from __future__ import annotations

from polyhal.hal.settings.state import settings


def use_deterministic_algorithms(mode: bool) -> None:
    """Add up in a fixed order everywhere, even where that costs much; False by default. A setting of the process.

    Whatever the setting, results repeat bit by bit except for what is named here, which uses atomic additions on a GPU: the
    gradient of an embedding, where many rows are added into a small table (up to ten times as fast), and attention's
    gradient with respect to queries in float32 (a quarter faster).
    """
    settings.deterministic = bool(mode)


def are_deterministic_algorithms_enabled() -> bool:
    """The setting in force."""
    return settings.deterministic
