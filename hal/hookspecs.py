"""The plug-in hook: how an installed distribution offers its backends.

A distribution registers an object (usually a module) under the entry-point group `polyhal.backends`. The object has a
function `polyhal_backends`, marked with `hookimpl`, that returns `BackendSpec`s. Probing and opening are named in the
specs and run later, so that loading a plug-in imports no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pluggy

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.protocol import ComputeBackend

PROJECT = "polyhal"
ENTRY_POINT_GROUP = "polyhal.backends"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """How to list and open the devices of one backend.

    `probe` and `create` are functions, or strings of the form "module:function" that are imported when needed.
    """

    name: str
    probe: Callable[[], Sequence[DeviceInfo]] | str
    """Lists the devices that exist now. It may import heavy modules, and runs in a thread of its own with a time limit
    (POLYHAL_PROBE_TIMEOUT). It may raise: the message, or a note of the exception (`add_note`), should then say what to
    install; `polyhal doctor` prints the note as the fix."""
    create: Callable[[str], ComputeBackend] | str
    """Opens the device with the given `DeviceInfo.selector`."""
    priority: int = 0
    """Breaks ties between devices that were not benchmarked or are equally fast; higher wins. Built-in backends use -100
    to 50."""
    api_version: int = 1
    """The contract version (`polyhal.hal.protocol.API_VERSION`) that the backend was written for. State it: the default
    is the version of plug-ins from a time when there was only one."""
    aliases: tuple[str, ...] = ()
    """Other names under which users may look for it, as in `Device("cl:0")`."""
    hidden: bool = False
    """Whether this is a test or teaching backend: opened by name only, never a default, listed only on request."""
    environment: tuple[str, ...] = ()
    """Prefixes of the environment variables that affect which devices are visible. `polyhal doctor` lists their values."""


class HookSpecs:
    """The hooks that pluggy validates plug-ins against."""

    @hookspec
    def polyhal_backends(self) -> Sequence[BackendSpec]:  # type: ignore[empty-body]
        """Return the backends of this distribution. Must be cheap: no driver calls, no heavy imports."""
