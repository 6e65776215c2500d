"""The one plug-in hook: a distribution names its backends, and nothing heavy is imported for that.

A backend registers an object (a module will do) under the entry-point group `polyhal.backends`; the object has a
function `polyhal_backends`, marked with `hookimpl`, that returns `BackendSpec`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pluggy

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.protocol import API_VERSION, ComputeBackend

PROJECT = "polyhal"
ENTRY_POINT_GROUP = "polyhal.backends"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """How to find and open the devices of one backend.

    `probe` lists the devices that exist now; it may import heavy modules and may raise. What to install then belongs into
    the message, or into a note of the exception (`add_note`), which `doctor` prints as the fix. It has a limited time
    (POLYHAL_PROBE_TIMEOUT) and runs in a thread of its own. `create` opens the device with that `DeviceInfo.selector`.
    Both may be given as "module:function".
    """

    name: str
    probe: Callable[[], Sequence[DeviceInfo]] | str
    create: Callable[[str], ComputeBackend] | str
    priority: int = 0
    """Breaks ties between devices that were not measured or are equally fast; higher wins. Ours lie between -100 and 50."""
    api_version: int = API_VERSION
    aliases: tuple[str, ...] = ()
    """Other names that people try, as in `Device("cl:0")`."""
    hidden: bool = False
    """True for test and teaching backends: opened by name only, never a default, listed only on request."""
    environment: tuple[str, ...] = ()
    """Beginnings of the names of environment variables that change which devices are seen, for `doctor`."""


class HookSpecs:
    """The namespace that pluggy checks plug-ins against."""

    @hookspec
    def polyhal_backends(self) -> Sequence[BackendSpec]:  # type: ignore[empty-body]
        """The backends that this distribution offers. Must be cheap: no driver calls, no heavy imports."""
