"""Descriptions of devices as data: a package with one TOML file per device, and what all of them say.

    title = "Radeon RX 480"
    sources = ["..."]               # where the values are from
    estimated = ["extensions"]      # those values that no source states for this very device
    ...                             # tables of the backend: what the driver reports
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Generic, TypeVar

from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.settings import toml

_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class DescriptionHead:
    """What is known of a device that is not here. Backends add what its driver reports."""

    key: str
    """Its name behind `described:`."""
    title: str
    sources: tuple[str, ...]
    estimated: tuple[str, ...]


D = TypeVar("D", bound=DescriptionHead)


class Catalogue(Generic[D]):
    """The descriptions of one backend."""

    def __init__(self, package: str, build: Callable[[Mapping[str, Any], dict[str, Any]], D]) -> None:
        """`build` makes a description of the fields of `DescriptionHead` and the rest of the file.

        It may raise AttributeError, KeyError, TypeError or ValueError.
        """
        self._package = package
        self._build = build

    def known(self) -> list[str]:
        """Return the names of all described devices."""
        files = (f.name for f in resources.files(self._package).iterdir())
        return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))

    def load(self, key: str) -> D:
        """Return the description of a device. Raises DeviceUnavailableError that lists all if there is none of that name."""
        if key not in self.known():
            raise unknown(key, self.known())
        return self.parse(key, resources.files(self._package).joinpath(key + _SUFFIX).read_text(encoding="utf-8"))

    def parse(self, key: str, text: str) -> D:
        """Parse a description from TOML. Raises ValueError that says what cannot be used."""
        try:
            data = toml.parse(text)
            head = {
                "key": key,
                "title": data.pop("title"),
                "sources": tuple(data.pop("sources")),
                "estimated": tuple(data.pop("estimated")),
            }
            return self._build(head, data)
        except (tomllib.TOMLDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the description {key}: {type(error).__name__}: {error}") from error


def unknown(key: str, names: Iterable[str]) -> DeviceUnavailableError:
    """Return the error for a name that no device has."""
    return DeviceUnavailableError(
        message(None, f"no device is described as {key!r}", expected=f"one of {', '.join(sorted(names))}")
    )


def check_estimated(estimated: Iterable[str], values: Iterable[str]) -> None:
    """Raise ValueError if an estimated value is none of the device's."""
    if strange := set(estimated) - set(values):
        raise ValueError(f"estimated values are none of the device's: {', '.join(sorted(strange))}")
