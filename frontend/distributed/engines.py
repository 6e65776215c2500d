"""Engines of process groups by name: MPI, Ray, and plug-ins of other packages."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint

from polyhal.distributed.environment import started_by_mpi
from polyhal.hal.collectives.process_group import ProcessGroup, ProcessGroupError, ProcessGroupSpec
from polyhal.hal.core.plugins import entry_points, probing
from polyhal.hal.core.plugins.entry_points import Failure, PluginError
from polyhal.hal.core.settings import env
from polyhal.hal.errors import message
from polyhal.hal.hookspecs import PROCESS_GROUPS_GROUP

_OURS = (
    ProcessGroupSpec("ray", "polyhal.distributed.ray:connect", lambda: _started_by_ray()),
    ProcessGroupSpec("mpi", "polyhal.distributed.mpi:connect", started_by_mpi),
)


class Engines:
    """Engines that are available. `points` are entry points to use instead of the installed ones."""

    def __init__(self, points: Sequence[EntryPoint] | None = None) -> None:
        self.specs = {spec.name: spec for spec in _OURS}
        self.failures: list[Failure] = []
        """Entry points that cannot be used, with reasons."""
        for point in entry_points.installed(PROCESS_GROUPS_GROUP) if points is None else points:
            self._load(point)

    def _load(self, point: EntryPoint) -> None:
        if point.name in env.disabled_backends():
            self.failures.append(Failure(point.name, "disabled by POLYHAL_DISABLE"))
            return
        source = f"entry point {entry_points.origin(point).point}"
        try:
            for spec in entry_points.load(point, entry_points.PROCESS_GROUP_HOOK):
                self._add(spec)
        except PluginError as error:
            self.failures.append(entry_points.failure(source, error))

    def _add(self, spec: object) -> None:
        if not isinstance(spec, ProcessGroupSpec):
            raise PluginError(f"polyhal_process_groups returned {spec!r} in its sequence; expected a ProcessGroupSpec")
        if not isinstance(spec.name, str) or not spec.name.isidentifier() or spec.name in self.specs:
            raise PluginError(f"the name of an engine is {spec.name!r}; expected an identifier that is not taken")
        self.specs[spec.name] = spec

    def connect(self, name: str | None) -> ProcessGroup | None:
        """Connect the engine `name`, or the one that started this process; return None if none did.

        Raises ProcessGroupError for an unknown name, PluginError for an engine that breaks the protocol, and the engine's own
        errors.
        """
        spec = self._recognised() if name is None else self.specs.get(name)
        if spec is None and name is not None:
            broken = "".join(f"; {f.source}: {f.reason}" for f in self.failures)
            raise ProcessGroupError(
                message("init", f"unknown engine {name!r}", expected=", ".join(self.specs) + broken)
            )
        if spec is None:
            return None
        group = probing.resolve(spec.connect)()
        if not isinstance(group, ProcessGroup):
            raise PluginError(f"the engine {spec.name!r} connected {group!r}; expected a ProcessGroup")
        return group

    def _recognised(self) -> ProcessGroupSpec | None:
        return next((s for s in self.specs.values() if s.recognises is not None and s.recognises()), None)


@functools.lru_cache(maxsize=1)
def engines() -> Engines:
    """Return the available engines, from the cache after the first call."""
    return Engines()


def _started_by_ray() -> bool:
    """Return whether this process is a rank of Ray: only a process that has imported the engine can be one."""
    engine = sys.modules.get("polyhal.distributed.ray")
    return engine is not None and bool(engine.started_by_ray())
