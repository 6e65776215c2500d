"""Default devices of ranks: the ranks of a machine are assigned to its devices round-robin."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.default_device import set_default_device
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.plugins.probing import hardware_type
from polyhal.hal.core.settings import env
from polyhal.hal.system.discovery import ranking
from polyhal.hal.system.discovery.registry import registry


def take_device(local_rank: int, devices: Sequence[str] = ()) -> None:
    """Make one of `devices`, or of POLYHAL_RANK_DEVICES, or else of the machine's GPUs the default device of this process.

    If POLYHAL_DEVICE is set, all ranks use that device. Raises DeviceUnavailableError.
    """
    named = [*devices] or [*env.rank_devices()]
    if not named and env.default_device() is None:
        named = _cards()
    if named:
        set_default_device(named[local_rank % len(named)])


def _cards() -> list[str]:
    """Return the names of this machine's GPUs if there are several: a CPU is one device for all ranks."""
    candidates = [c for c in registry().candidates() if hardware_type(c.info) is DeviceType.GPU]
    cards = ranking.group_by_card(candidates)
    return [f"gpu:{i}" for i in range(len(cards))] if len(cards) > 1 else []
