"""The plug-in hooks: how an installed distribution offers backends, ops and engines for process groups.

A distribution registers an object (usually a module) under the entry-point group `polyhal.backends`, `polyhal.ops` or
`polyhal.process_groups`. The object has a function `polyhal_backends`, `polyhal_ops` or `polyhal_process_groups`, marked with
`hookimpl`, that returns `BackendSpec`s, `OpSpec`s or `ProcessGroupSpec`s. Probing, opening, declarations and connections are
named in the specs and run later, so that loading a plug-in imports no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pluggy

from polyhal.hal.capabilities import DeviceInfo, UnusableDevice
from polyhal.hal.collectives.process_group import ProcessGroupSpec
from polyhal.hal.protocol import ComputeBackend

PROJECT = "polyhal"
ENTRY_POINT_GROUP = "polyhal.backends"
OPS_GROUP = "polyhal.ops"
PROCESS_GROUPS_GROUP = "polyhal.process_groups"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """How to list and open the devices of one backend.

    `probe` and `create` are functions, or strings of the form "module:function" that are imported when needed.
    """

    name: str
    probe: Callable[[], Sequence[DeviceInfo | UnusableDevice]] | str
    """Lists the devices that exist now; an `UnusableDevice` says why one of them is left out. It may import heavy modules, and
    runs in a thread of its own with a time limit (POLYHAL_PROBE_TIMEOUT), and before that once in a process of its own. It
    may raise: the message, or a note of the exception (`add_note`), should then name the missing package or driver;
    `polyhal doctor`
    prints the note as the fix."""
    create: Callable[[str], ComputeBackend] | str
    """Opens the device with the given `DeviceInfo.selector`."""
    priority: int = 0
    """Orders devices of one type that are about equally fast; higher comes first. A negative priority ranks the devices
    behind all others of any type, unless they are clearly faster. Built-in backends use -100 to 50."""
    api_version: int = 1
    """The contract version (`polyhal.hal.protocol.API_VERSION`) that the backend was written for. State it: the default
    is the version of plug-ins from a time when there was only one."""
    aliases: tuple[str, ...] = ()
    """Other names under which users may look for it, as in `Device("cl:0")`."""
    hidden: bool = False
    """True if this is a test or teaching backend: opened by name only, never a default, listed only on request."""
    environment: tuple[str, ...] = ()
    """Prefixes of the environment variables that affect which devices are visible. `polyhal doctor` lists their values."""
    expand: Callable[[str], Sequence[str]] | str | None = None
    """Returns the selectors of all devices that a selector abbreviates in a list of devices, itself if it names one. A
    function, or "module:function"; None if selectors name single devices."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """Where one op of a distribution is declared."""

    name: str
    """The name under which it is declared, and by which users find it in `polyhal.ops`."""
    function: Callable[..., Any] | str
    """The result of `declare` or `polyhal.kernel`, or "module:attribute", which is imported when the op is first used."""


class HookSpecs:
    """The hooks that pluggy validates plug-ins against."""

    @hookspec
    def polyhal_backends(self) -> Sequence[BackendSpec]:  # type: ignore[empty-body]
        """Return the backends of this distribution. Must be cheap: no driver calls, no heavy imports."""


class OpHookSpecs:
    """As `polyhal_backend`, for plug-ins with ops, which are not part of the contract of backends."""

    @hookspec
    def polyhal_ops(self) -> Sequence[OpSpec]:  # type: ignore[empty-body]
        """Return the ops of this distribution. Must be cheap: name the module that declares them, and do not import it."""


class ProcessGroupHookSpecs:
    """As `polyhal_backend`, for plug-ins with engines for process groups."""

    @hookspec
    def polyhal_process_groups(self) -> Sequence[ProcessGroupSpec]:  # type: ignore[empty-body]
        """Return the engines of this distribution. Must be cheap: name the function that connects, and import nothing."""
