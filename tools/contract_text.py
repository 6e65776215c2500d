"""The backend contract as text, pinned in `tests/hal/contract_v*.txt`, so that third-party backends keep working.

The text lists the whole interface of a backend: members with their parameters, records with their fields and defaults,
names. Fields with a default may be appended to a record, and optional protocols, names, records, errors and features
may be added. Any other change breaks third-party backends and requires a new API_VERSION.
"""

from __future__ import annotations

import enum
import inspect
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from polyhal.hal import dtypes, errors, hookspecs, layout, member_names, protocol
from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType, Limits, UnusableDevice
from polyhal.hal.protocol import BindingSlot, CommandBuffer, CompletionEvent, Event, Launch, RecordedLaunch

_OBJECTS = (Event, Launch, CommandBuffer, CompletionEvent)
"""Types that backends return."""
_TUPLES = (
    layout.Spec,
    layout.ScalarSpec,
    RecordedLaunch,
    protocol.GraphValue,
    protocol.GraphNode,
    protocol.GraphProgram,
)
_HEAD = """\
# The interface of a backend under contract version {version}. Written by `make generate`. Sections marked + may grow,
# records at the end and by fields with a default; nothing else may change without a new API_VERSION.
"""


def contract_text() -> str:
    """Return the contract of the current code: sections, each with a title and indented lines."""
    optional = protocol.PROTOCOLS
    sections = {
        "names": [
            f"API_VERSION = {protocol.API_VERSION}",
            f"ENTRY_POINT_GROUP = {hookspecs.ENTRY_POINT_GROUP!r}",
            f"PROJECT = {hookspecs.PROJECT!r}",
            f"ALIGNMENT = {layout.ALIGNMENT}",
            *_methods(hookspecs.HookSpecs),
        ],
        "required names": [
            f"{family}: {' '.join(sorted(getattr(protocol, f'REQUIRED_{family.upper()}')))}"
            for family in ("unary", "binary", "reduce")
        ],
        "required dtypes": sorted(d.name for d in dtypes.REQUIRED),
        "optional names +": [
            f"{family} {name}"
            for family in ("unary", "binary", "reduce")
            for name in sorted(getattr(member_names, f"OPTIONAL_{family.upper()}"))
        ],
        "dtypes": [f"{d.name}: {d.kind}, {d.itemsize} bytes" for d in dtypes.ALL],
        "protocol ComputeBackend": _members(protocol.ComputeBackend),
        **{f"protocol {p.__name__}": _members(p) for p in (*optional.values(), *_OBJECTS)},
        "enumeration Feature +": [m.name or "" for m in protocol.Feature if m],
        "enumeration DeviceType": [f"{m.name} = {m.value!r}" for m in DeviceType],
        **{
            f"record {r.__name__} +": _fields(r)
            for r in (
                DeviceInfo,
                UnusableDevice,
                Capabilities,
                Limits,
                hookspecs.BackendSpec,
                protocol.SimpleLaunch,
                protocol.Declined,
            )
        },
        **{f"record {r.__name__} +": _tuple_fields(r) for r in _TUPLES},
        **{
            f"attributes of {c.__name__} +": _attributes(c)
            for c in (layout.Ref, layout.Spec, layout.ScalarSpec, dtypes.DType, BindingSlot)
        },
        "record Ref +": _parameters(layout.Ref),
        "errors +": [
            f"{e.__name__}({', '.join(b.__name__ for b in e.__bases__)})"
            for e in vars(errors).values()
            if inspect.isclass(e) and issubclass(e, errors.PolyhalError)
        ],
        "functions": [f"message{_plain(errors.message)}", f"features_of{_plain(protocol.features_of)}"],
    }
    lines = [_HEAD.format(version=protocol.API_VERSION)]
    for title, content in sections.items():
        lines += [title, *(f"    {line}" for line in content), ""]
    return "\n".join(lines)


def _plain(function: Any) -> str:
    """Return the parameters with kinds and defaults, without annotations and `self`."""
    parameters = inspect.signature(function).parameters.values()
    plain = [p.replace(annotation=p.empty) for p in parameters if p.name != "self"]
    return str(inspect.Signature(plain))


def _methods(owner: type) -> list[str]:
    return [
        f"{name}{_plain(member)}"
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__call__")
    ]


def _members(owner: type) -> list[str]:
    """Return attributes, properties and methods of a protocol, in order."""
    properties = [name for name, member in vars(owner).items() if isinstance(member, property)]
    return [*inspect.get_annotations(owner), *properties, *_methods(owner)]


def _fields(record: Any) -> list[str]:
    assert is_dataclass(record)
    return [f"{f.name}{_default(f)}" for f in fields(record)]


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f" = {_text(field.default)}"
    return f" = {_text(field.default_factory())}" if field.default_factory is not MISSING else ""


def _text(value: Any) -> str:
    """Format a default independently of the order of sets."""
    if isinstance(value, frozenset):
        return "all dtypes" if value == frozenset(dtypes.ALL) else f"{{{', '.join(sorted(map(str, value)))}}}"
    return (
        value.name
        if isinstance(value, enum.Enum)
        else f"{type(value).__name__}()"
        if is_dataclass(value)
        else repr(value)
    )


def _tuple_fields(record: Any) -> list[str]:
    defaults = record._field_defaults
    return [f"{name} = {defaults[name]!r}" if name in defaults else name for name in record._fields]


def _parameters(owner: type) -> list[str]:
    parameters = inspect.signature(owner).parameters.values()
    return [p.name if p.default is p.empty else f"{p.name} = {p.default!r}" for p in parameters]


def _attributes(owner: type) -> list[str]:
    """Return public properties and methods of a class that is not a protocol, without a tuple's methods."""
    public = [n for n in vars(owner) if not n.startswith("_") and n not in ("count", "index")]
    known = set(getattr(owner, "_fields", ())) | set(getattr(owner, "__dataclass_fields__", ()))
    return sorted(n for n in public if n not in known)


def breaking_changes(pinned: str, current: str) -> list[str]:
    """Return the differences that require a new API_VERSION, one line each."""
    before, after = _sections(pinned), _sections(current)
    breaking = []
    for title, lines in before.items():
        now = after.get(title)
        if now is None:
            breaking.append(f"{title} is gone")
        elif not _continues(title, lines, now):
            gone = [f"- {line}" for line in lines if line not in now]
            come = [f"+ {line}" for line in now if line not in lines]
            breaking.append(f"{title}: {'; '.join(gone + come) or 'another order'}")
    added_titles = [t for t in after if t not in before and not t.startswith(("protocol ", "record ", "optional "))]
    return breaking + [f"{title} is new" for title in added_titles]


def _continues(title: str, before: list[str], after: list[str]) -> bool:
    """Return whether `after` is `before`, or an allowed extension of it."""
    if not title.endswith("+"):
        return after == before
    if title.startswith(("attributes", "errors", "optional")):
        return set(before) <= set(after)
    optional = not title.startswith("record") or all(" = " in line for line in after[len(before) :])
    return after[: len(before)] == before and optional


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("    "):
            sections[title].append(line.strip())
        elif line and not line.startswith("#"):
            title = line
            sections[title] = []
    return sections
