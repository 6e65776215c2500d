"""Descriptions of adapters: their properties in wgpu, as tables in the files of a `Catalogue`.

    features = ["shader-f16"]       # supported `capabilities.OPTIONAL_FEATURES`
    [adapter]                       # the adapter's `info`
    [limits]                        # `capabilities.LIMITS`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.common.described.backend import NAME
from polyhal.backends.common.described.catalogue import Catalogue, DescriptionHead, check_estimated
from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.capabilities import LIMITS, OPTIONAL_FEATURES
from polyhal.hal.capabilities import DeviceInfo

_INFO = ("adapter_type", "backend_type", "description", "device", "device_id", "vendor", "vendor_id")


@dataclass(frozen=True, slots=True)
class DescribedAdapter:
    """The attributes of a wgpu adapter that the backend reads."""

    info: Mapping[str, Any]
    features: frozenset[str]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AdapterDescription(DescriptionHead):
    """A described device of wgpu."""

    adapter: DescribedAdapter

    @property
    def info(self) -> DeviceInfo:
        """Return the identity of the device."""
        found = discovery.describe(self.adapter)
        return replace(
            found, backend=NAME, name=f"{self.title} (described)", id=f"{NAME}/{self.key}", selector=self.key
        )


def _build(head: Mapping[str, Any], data: dict[str, Any]) -> AdapterDescription:
    info, features, limits = data.pop("adapter"), data.pop("features"), data.pop("limits")
    for given, wanted, what in ((info, _INFO, "the adapter"), (limits, LIMITS, "the limits")):
        if missing := set(given) ^ set(wanted):
            raise ValueError(f"{what} must be exactly {', '.join(wanted)}; wrong or missing: {', '.join(sorted(missing))}")
    if unknown := set(features) - set(OPTIONAL_FEATURES):
        raise ValueError(f"unknown features: {', '.join(sorted(unknown))}")
    if wrong := [name for name, value in limits.items() if value < 0]:
        raise ValueError(f"negative: {', '.join(wrong)}")
    check_estimated(head["estimated"], [*info, "features", *features, *limits])
    return AdapterDescription(**head, adapter=DescribedAdapter(info, frozenset(features), limits), **data)


_CATALOGUE = Catalogue("polyhal.backends.wgpu.devices", _build)
known, load, parse = _CATALOGUE.known, _CATALOGUE.load, _CATALOGUE.parse
