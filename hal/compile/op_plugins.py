"""Ops of other distributions: found by entry point, and declared at first use by name or with all others.

A distribution lists the names of its ops and the modules that declare them, so that discovery does not import them. A
broken distribution is recorded and does not affect others.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from typing import Any

from polyhal.hal.core.plugins import entry_points, probing
from polyhal.hal.core.plugins.entry_points import UNKNOWN, Failure, PluginError, PluginOrigin, describe
from polyhal.hal.core.plugins.trial_cache import Plugin, TrialCache
from polyhal.hal.core.settings import env
from polyhal.hal.hookspecs import OPS_GROUP, OpSpec
from polyhal.hal.ops import BUILT_IN, OPS, PUBLIC
from polyhal.hal.ops.opdef import OpDef, OpFunction


class OpPlugins:
    """Ops of the distributions of this environment; `points` replaces their entry points."""

    def __init__(self, points: Sequence[EntryPoint] | None = None) -> None:
        self.failures: list[Failure] = []
        self.sources: list[tuple[str, str]] = []
        """(entry point, distribution) of each entry point that loaded, for `doctor`."""
        self.origins: dict[str, PluginOrigin] = {}
        """Origin of each op, by name."""
        self._specs: dict[str, OpSpec] = {}
        self._functions: dict[str, OpFunction | PluginError] = {}
        """Functions of imported ops, or the error of their import."""
        found = entry_points.installed(OPS_GROUP) if points is None else points
        foreign = [p for p in found if not entry_points.is_ours(p) and p.name not in env.disabled_backends()]
        outcomes = dict(zip(foreign, TrialCache().outcomes([Plugin(p) for p in foreign]), strict=True))
        for point in found:
            outcome = outcomes.get(point)
            if outcome is not None and outcome.problem:  # its import ended or blocked the process of the trial
                source = f"entry point {entry_points.origin(point).point}"
                self.failures.append(
                    Failure(source, f"{outcome.problem} (package {entry_points.origin(point)})", outcome.fix)
                )
            else:
                self._load(point)

    def _load(self, point: EntryPoint) -> None:
        """Register the ops of an entry point, and record its failures."""
        origin = entry_points.origin(point)
        source = f"entry point {origin.point}"
        if point.name in env.disabled_backends():
            self.failures.append(Failure(point.name, "disabled by POLYHAL_DISABLE"))
            return
        try:
            specs = entry_points.load(point, entry_points.OP_HOOK)
        except PluginError as error:
            self.failures.append(entry_points.failure(source, error))
            return
        for spec in specs:
            try:
                self.add(spec, origin)
            except PluginError as error:
                fix = error.fix or f"update or uninstall {origin.distribution or point.value}"
                self.failures.append(Failure(source, describe(error), fix))
        self.sources.append((origin.point, origin.distribution))

    def add(self, spec: OpSpec, origin: PluginOrigin = UNKNOWN) -> None:
        """Register one op. Raises PluginError for a malformed spec, and for a name that is taken, with both packages."""
        if not isinstance(spec, OpSpec):
            raise PluginError(f"polyhal_ops returned {spec!r} in its sequence; expected an OpSpec")
        if not isinstance(spec.name, str) or not spec.name.isidentifier():
            raise PluginError(f"the name of an op is {spec.name!r}; expected an identifier")
        named = isinstance(spec.function, str) and all(spec.function.partition(":"))
        if not named and not hasattr(spec.function, "op"):
            raise PluginError(
                f"op {spec.name!r}: function is {spec.function!r}; expected the function of an op or 'module:attribute'"
            )
        if spec.name in BUILT_IN or spec.name in PUBLIC:
            raise PluginError(f"{origin} declares an op {spec.name!r}, which is an op of polyhal", "rename the op")
        if spec.name in self._specs:
            owner = self.origins[spec.name]
            raise PluginError(
                f"{origin} declares an op {spec.name!r}, already declared by {owner}, which keeps the name",
                f"uninstall {origin.distribution or origin.point} or {owner.distribution or owner.point}",
            )
        self._specs[spec.name] = spec
        self.origins[spec.name] = origin

    def names(self) -> list[str]:
        """Return the names of all ops, sorted, without importing them."""
        return sorted(self._specs)

    def function(self, name: str) -> OpFunction:
        """Return the function of an op, whose module is imported at the first request.

        Raises KeyError for an unknown name, and PluginError if the declaration fails.
        """
        if name not in self._specs:
            close = difflib.get_close_matches(name, self._specs, 3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise KeyError(f"no installed package declares an op {name!r}{hint}")
        if name not in self._functions:
            try:
                self._functions[name] = self._declared(self._specs[name])
            except PluginError as error:
                # A module that fails is not imported again: it may have declared some of its ops.
                self._functions[name] = error
                self.failures.append(Failure(f"op {name} of {self.origins[name]}", describe(error), error.fix))
        result = self._functions[name]
        if isinstance(result, PluginError):
            raise result
        return result

    def _declared(self, spec: OpSpec) -> OpFunction:
        """Import the declaration of an op. Raises PluginError."""
        origin = self.origins[spec.name]
        fix = f"update or uninstall {origin.distribution or origin.point}"
        try:
            function: Any = probing.resolve(spec.function)
            op = getattr(function, "op", None)
            if not isinstance(op, OpDef) or op.name != spec.name:
                raise PluginError(f"{spec.function} is {op or function!r}; expected the function of the op {spec.name}")
            if spec.name not in OPS:  # a kernel of `polyhal.kernel`
                OPS.add(op)
            elif OPS[spec.name] is not op:
                raise PluginError(f"the name {spec.name!r} belongs to another op: {OPS[spec.name].doc}")
        except PluginError as error:
            error.fix = error.fix or fix
            raise
        except Exception as error:
            raise PluginError(describe(error), fix) from error
        return op.call

    def load(self, names: Iterable[str] | None = None) -> list[OpDef]:
        """Declare the named ops, by default all, and return the declared ones; errors of the others are in `failures`."""
        out = []
        for name in self.names() if names is None else names:
            try:
                out.append(self.function(name).op)
            except PluginError:
                continue
        return out

    def of_package(self, package: str) -> list[str]:
        """Return the names of the ops of a distribution or an entry point."""
        return [n for n, o in self.origins.items() if package in (o.distribution, o.point.partition(" = ")[0])]


@functools.lru_cache(maxsize=1)
def op_plugins() -> OpPlugins:
    """Return the ops of this environment, looked up once."""
    return OpPlugins()


def declared(name: str) -> OpDef | None:
    """Return the op of that name, built-in or of an installed package; None if there is none. Raises PluginError."""
    if name in OPS:
        return OPS[name]
    known = op_plugins()
    return known.function(name).op if name in known.origins else None
