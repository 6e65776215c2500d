"""Plug-ins: loading of backends or ops from an entry point.

Every mistake of a third-party distribution becomes a `PluginError` with the problem and its fix. The registry records it as a
`Failure`; other plug-ins are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import pluggy

from polyhal.hal.collectives.process_group import ProcessGroupSpec
from polyhal.hal.core.plugins.timeout import NoAnswerError, within
from polyhal.hal.core.settings import env
from polyhal.hal.errors import PolyhalError
from polyhal.hal.hookspecs import PROJECT, BackendSpec, HookSpecs, OpHookSpecs, OpSpec, ProcessGroupHookSpecs
from polyhal.hal.printable import printable
from polyhal.hal.protocol import API_VERSION

RESERVED = frozenset({"cpu", "gpu"})
"""Names of the best device of a kind, on any backend."""


class PluginHook(NamedTuple):
    """A function that a plug-in implements, and the type of the items that it returns."""

    name: str
    spec: type


BACKEND_HOOK = PluginHook("polyhal_backends", BackendSpec)
OP_HOOK = PluginHook("polyhal_ops", OpSpec)
PROCESS_GROUP_HOOK = PluginHook("polyhal_process_groups", ProcessGroupSpec)


class PluginError(PolyhalError, ValueError):
    """A plug-in violates the contract. `fix` is the remedy; it may be empty."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why an entry point, a backend or a device is not available, and the fix if it is known."""

    source: str
    reason: str
    fix: str = ""
    unexpected: bool = False
    """True if programs that use the default device are warned, because installed software fails."""

    def __post_init__(self) -> None:
        for name in ("source", "reason", "fix"):
            object.__setattr__(self, name, printable(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class PluginOrigin:
    """Origin of a backend: its entry point, and the distribution with its version (empty if unknown)."""

    point: str
    distribution: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip() or self.point


UNKNOWN = PluginOrigin("the program itself")
"""Origin of a backend that was registered by a call."""


def installed(group: str) -> list[EntryPoint]:
    """Return the entry points of this environment, Polyhal's first, so that no other distribution can take their names."""
    return sorted(
        entry_points(group=group),
        key=lambda p: (p.dist is None or p.dist.name != "polyhal", p.dist.name if p.dist else "", p.name),
    )


def is_ours(point: EntryPoint) -> bool:
    """Return whether Polyhal itself declares an entry point."""
    return point.dist is not None and point.dist.name == "polyhal"


def origin(point: EntryPoint) -> PluginOrigin:
    """Return the origin of `point`."""
    text = f"{point.name} = {point.value}"
    return PluginOrigin(text, point.dist.name, point.dist.version) if point.dist else PluginOrigin(text)


def describe(error: BaseException) -> str:
    """Return an exception in one line: type and message, or only the message for Polyhal's errors."""
    name = type(error).__name__
    try:
        text = printable(" ".join(str(error).split()))
    except BaseException as hostile:  # `__str__` of a plug-in's exception
        return f"{name} (a message that raises {type(hostile).__name__})"
    if isinstance(error, PolyhalError) and text:
        return text
    return f"{name}: {text}" if text else name


def failure(source: str, error: BaseException) -> Failure:
    """Return the record of an exception. Its notes (see `BaseException.add_note`) become the fix."""
    return Failure(source, describe(error), fix(error))


def fix(error: BaseException) -> str:
    """Return the advice of an exception, if it has any."""
    try:
        return printable(error.fix if isinstance(error, PluginError) else "; ".join(getattr(error, "__notes__", ())))
    except BaseException:  # the notes of a plug-in's exception may be anything
        return ""


def load(point: EntryPoint, hook: PluginHook = BACKEND_HOOK) -> list[Any]:
    """Return the result of a hook of `point`, as a list. Limited by POLYHAL_PROBE_TIMEOUT.

    Raises PluginError, or any error of the plug-in.
    """
    source = origin(point)
    owner = source.distribution or point.value
    seconds = env.probe_timeout()
    try:
        return within(seconds, lambda: _call_hook(point, hook), f"load {point.name}")
    except NoAnswerError as error:
        raise PluginError(f"loading it gave {error}", slow_plugin_fix(f"POLYHAL_DISABLE={point.name}")) from error
    except ImportError as error:
        missing = (
            f"install the package that provides the module {error.name}" if error.name else "install its requirements"
        )
        raise PluginError(describe(error), f"{missing}, or uninstall {owner}") from error
    except PluginError as error:
        error.fix = error.fix or f"update or uninstall {owner}"
        raise
    except Exception as error:
        raise PluginError(describe(error), f"update or uninstall {owner}") from error


def crash_fix(variable: str) -> str:
    """Return the advice for a plug-in that ends its process."""
    return f"update or uninstall it; {variable} excludes it; `polyhal doctor` tries it again"


def slow_plugin_fix(variable: str) -> str:
    """Return the advice for a plug-in that does not respond."""
    return f"if it only starts slowly, set POLYHAL_PROBE_TIMEOUT=60; {variable} excludes it"


def _call_hook(point: EntryPoint, hook: PluginHook) -> list[Any]:
    plugin = point.load()
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    manager.add_hookspecs(OpHookSpecs)
    manager.add_hookspecs(ProcessGroupHookSpecs)
    what = f"{point.value}: {hook.name}"
    try:
        manager.register(plugin, point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{what} must take no arguments ({' '.join(str(error).split())})") from error
    caller = getattr(manager.hook, hook.name)
    if not caller.get_hookimpls():
        raise PluginError(f"{point.value} has no function {hook.name} marked with polyhal.hal.hookspecs.hookimpl")
    results = caller()
    # pluggy drops the result None.
    specs = results[0] if results else None
    if isinstance(specs, str | hook.spec) or not isinstance(specs, Iterable):
        raise PluginError(f"{what} returned {specs!r}; expected a sequence of {hook.spec.__name__}")
    return list(specs)


def validate_spec(spec: Any) -> BackendSpec:
    """Return `spec` if it is a usable BackendSpec. Raises PluginError."""
    if not isinstance(spec, BackendSpec):
        raise PluginError(f"polyhal_backends returned {spec!r} in its sequence; expected a BackendSpec")
    # Versions come first: the meaning of the other fields depends on them.
    if spec.api_version != API_VERSION:
        newer = isinstance(spec.api_version, int) and spec.api_version > API_VERSION
        raise PluginError(
            f"backend {spec.name!r} implements contract version {spec.api_version!r}; this Polyhal requires {API_VERSION}",
            "update polyhal" if newer else "update the plug-in",
        )
    _validate_name("name", spec.name)
    for field in ("probe", "create", "expand"):
        function = getattr(spec, field)
        named = isinstance(function, str) and all(function.partition(":"))
        if not named and not callable(function) and (field, function) != ("expand", None):
            raise PluginError(
                f"backend {spec.name!r}: {field} is {function!r}; expected a function or 'module:function'"
            )
    if not isinstance(spec.priority, int | float):
        raise PluginError(f"backend {spec.name!r}: priority is {spec.priority!r}; expected a number")
    for field in ("aliases", "environment"):
        value = getattr(spec, field)
        if not isinstance(value, tuple | list) or not all(isinstance(v, str) for v in value):
            raise PluginError(f"backend {spec.name!r}: {field} is {value!r}; expected a tuple of names")
    for alias in spec.aliases:
        _validate_name(f"backend {spec.name!r}: alias", alias)
    return spec


def _validate_name(field: str, name: Any) -> None:
    if not isinstance(name, str) or not name or not name.isprintable() or any(c == ":" or c.isspace() for c in name):
        raise PluginError(f"{field} is {name!r}; expected a word without colon")
    if name in RESERVED:
        raise PluginError(
            f"{field} is {name!r}, which is reserved for the best device of a kind on any backend; choose another"
        )
