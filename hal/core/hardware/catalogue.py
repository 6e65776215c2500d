"""The cards of the catalogue, and users' own files: read, checked, and opened by name, alias or path."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.hardware.card_schema import CARD
from polyhal.hal.core.settings import toml_schema
from polyhal.hal.errors import message

SUFFIX = ".toml"
_PACKAGE = "polyhal.hal.core.hardware.cards"
_OLD_LAYOUT = (
    "this is a profile of an earlier version: move title and type of [device] to the top of the file, add vendor there, "
    "rename [device] to [performance], [driver] to [performance.overhead], [link] to [links.host], [peer_link] to "
    "[links.peer], and put `performance.` before the names of all other tables"
)


@dataclass(frozen=True, slots=True)
class Card:
    """One card."""

    name: str
    """Name of its file without `.toml`; for a user's file, its path."""
    title: str
    vendor: str
    type: DeviceType
    family: str
    """Name of the vendor profile that fits its driver; empty if unknown."""
    aliases: tuple[str, ...]
    tables: Mapping[str, Any]
    """All tables of the file, checked."""

    @property
    def apis(self) -> list[str]:
        """Return the APIs through which it is described."""
        return list(self.tables.get("driver", ()))

    @property
    def is_simulated(self) -> bool:
        """Return whether its performance is known."""
        return self.has("performance")

    def has(self, section: str) -> bool:
        """Return whether the card has a section, such as `links.host`."""
        return _find(self.tables, section) is not None

    def section(self, section: str) -> Mapping[str, Any]:
        """Return the table of a section. Raises ValueError that lists the cards with this section if it is missing."""
        found = _find(self.tables, section)
        if found is None:
            problem = f"the card {self.name} has no section [{section}]"
            raise ValueError(message(None, problem, expected=f"a card with it: {', '.join(names(section))}"))
        return found


def names(*sections: str) -> list[str]:
    """Return the names of all cards of the catalogue that have these sections."""
    return [name for name in _files() if all(map(_shipped(name).has, sections))]


def find(name: str, *sections: str) -> Card:
    """Return a card by its name, an alias, or the path of a `.toml` file.

    Raises ValueError, which lists the cards with these sections, if there is none or if it lacks one of them, and
    FaultyFileError, a ValueError, for a file with faults.
    """
    card = _read(name) if name.endswith(SUFFIX) else _shipped(canonical(name, sections))
    for section in sections:
        card.section(section)
    return card


def is_known(name: str) -> bool:
    """Return whether the catalogue has a card of this name or alias."""
    return name in _files() or name in _aliases()


def canonical(name: str, sections: Iterable[str] = ()) -> str:
    """Return the name of a card of the catalogue, given its name or an alias. Raises ValueError if there is none."""
    if name in _files():
        return name
    if name not in _aliases():
        expected = f"one of {', '.join(names(*sections))}, or the path of a {SUFFIX} file"
        raise ValueError(message(None, f"unknown card {name!r}", expected=expected))
    return _aliases()[name]


def parse(name: str, text: str) -> Card:
    """Parse the text of a card. Raises FaultyFileError, a ValueError, with all faults."""
    tables = toml_schema.parse_toml(name, text)
    if isinstance(tables.get("device"), dict):
        raise ValueError(f"{name} is not a card; {_OLD_LAYOUT}")
    tables = toml_schema.checked(name, tables, CARD)
    about = {key: tables.get(key, "") for key in ("title", "vendor", "family")}
    return Card(name, type=DeviceType(tables["type"]), aliases=tuple(tables.get("aliases", ())), tables=tables, **about)


def _find(tables: Mapping[str, Any], section: str) -> Mapping[str, Any] | None:
    found: Any = tables
    for part in section.split("."):
        found = found.get(part)
        if not isinstance(found, dict):
            return None
    return dict(found)


def _read(path: str) -> Card:
    try:
        return parse(path, Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"{path} cannot be read: {reason}") from error


@functools.cache
def _files() -> tuple[str, ...]:
    files = (f.name for f in resources.files(_PACKAGE).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)))


@functools.cache
def _shipped(name: str) -> Card:
    return parse(name, resources.files(_PACKAGE).joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8"))


@functools.cache
def _aliases() -> dict[str, str]:
    """Return the names of cards by alias."""
    return {alias: name for name in _files() for alias in _shipped(name).aliases}
