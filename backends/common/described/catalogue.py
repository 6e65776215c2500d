"""Descriptions of devices as data: a package with one TOML file per device, and their common fields.

    title = "Radeon RX 480"
    sources = ["..."]               # sources of the values
    estimated = ["extensions"]      # values without a source for this exact device
    ...                             # tables of the backend: properties reported by the driver
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
    """Common fields of a described device. Backends add properties reported by its driver."""

    key: str
    """Name after `described:`."""
    title: str
    sources: tuple[str, ...]
    estimated: tuple[str, ...]


D = TypeVar("D", bound=DescriptionHead)


class Catalogue(Generic[D]):
    """The descriptions of one backend."""

    def __init__(self, package: str, build: Callable[[Mapping[str, Any], dict[str, Any]], D]) -> None:
        """Load files of a package. `build` converts the fields of `DescriptionHead` and the rest of a file to a description.

        `build` may raise AttributeError, KeyError, TypeError or ValueError.
        """
        self._package = package
        self._build = build

    def known(self) -> list[str]:
        """Return the names of all described devices."""
        files = (f.name for f in resources.files(self._package).iterdir())
        return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))

    def load(self, key: str) -> D:
        """Return the description of a device. Raises DeviceUnavailableError, which lists all names, for an unknown name."""
        if key not in self.known():
            raise unknown(key, self.known())
        return self.parse(key, resources.files(self._package).joinpath(key + _SUFFIX).read_text(encoding="utf-8"))

    def parse(self, key: str, text: str) -> D:
        """Parse a description from TOML. Raises ValueError for invalid values."""
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
    """Return the error for an unknown name."""
    return DeviceUnavailableError(
        message(None, f"no device is described as {key!r}", expected=f"one of {', '.join(sorted(names))}")
    )


def check_estimated(estimated: Iterable[str], values: Iterable[str]) -> None:
    """Raise ValueError if an estimated value is not a value of the device."""
    if strange := set(estimated) - set(values):
        raise ValueError(f"estimated values are not values of the device: {', '.join(sorted(strange))}")
