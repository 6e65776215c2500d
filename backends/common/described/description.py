"""Described devices as cards: the selectors `rx6800` and `rx6800-vulkan`, and the common part of their descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.core.hardware import catalogue
from polyhal.hal.core.hardware.card_schema import DRIVER_APIS
from polyhal.hal.core.hardware.catalogue import Card

_UNNAMED = ("opencl", "webgpu")
"""APIs that are not part of a selector."""


@dataclass(frozen=True, slots=True)
class CardDescription:
    """A card with the driver of one API. Backends add the properties that this driver reports."""

    card: Card
    api: str

    @property
    def key(self) -> str:
        """Name after `described:`."""
        return self.card.name if self.api in _UNNAMED else f"{self.card.name}-{self.api}"

    @property
    def driver(self) -> Mapping[str, Any]:
        """Section of the driver."""
        return self.card.section(f"driver.{self.api}")


def find(key: str) -> CardDescription:
    """Return the description of a selector: a card, with an API after a hyphen unless it is the first one of the card.

    Raises ValueError, which lists the cards with a driver of this API, if there is none.
    """
    name, _, api = key.rpartition("-")
    if not name or api not in DRIVER_APIS:
        name, api = key, ""
    card = catalogue.find(name, f"driver.{api}" if api else "driver")
    return CardDescription(card, api or next((a for a in DRIVER_APIS if a in card.apis), DRIVER_APIS[0]))


def known(*apis: str) -> list[str]:
    """Return the selectors of all cards with drivers of these APIs."""
    return sorted(CardDescription(catalogue.find(n), api).key for api in apis for n in catalogue.names(f"driver.{api}"))
