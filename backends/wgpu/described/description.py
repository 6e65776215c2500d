"""Descriptions of adapters, from the sections of a card for the APIs of wgpu."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.common.described import description
from polyhal.backends.common.described.backend import NAME
from polyhal.backends.common.described.description import CardDescription
from polyhal.backends.wgpu import discovery
from polyhal.hal.capabilities import DeviceInfo, DeviceType

_APIS = {"vulkan": "Vulkan", "metal": "Metal", "d3d12": "D3D12", "webgpu": ""}
"""Names of APIs as adapters report them. The specification of WebGPU is not tied to one."""
_ADAPTER_TYPES = {DeviceType.GPU: "DiscreteGPU", DeviceType.INTEGRATED_GPU: "IntegratedGPU", DeviceType.CPU: "CPU"}


@dataclass(frozen=True, slots=True)
class DescribedAdapter:
    """The attributes of a wgpu adapter that the backend reads."""

    info: Mapping[str, Any]
    features: frozenset[str]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AdapterDescription(CardDescription):
    """A described device of wgpu."""

    adapter: DescribedAdapter

    @property
    def info(self) -> DeviceInfo:
        """Identity of the device."""
        found = discovery.describe(self.adapter)
        name = f"{', '.join(filter(None, (self.card.title, _APIS[self.api])))} (described)"
        return replace(found, backend=NAME, name=name, id=f"{NAME}/{self.key}", selector=self.key)

    def having(self, features: Iterable[str]) -> AdapterDescription:
        """Return the description of an adapter that also has these features."""
        return replace(self, adapter=replace(self.adapter, features=self.adapter.features.union(features)))


def known() -> list[str]:
    """Return the selectors of all described adapters."""
    return description.known(*_APIS)


def load(key: str) -> AdapterDescription:
    """Return the description of an adapter. Raises ValueError that lists the cards if there is none."""
    found = description.find(key)
    kind = {
        "backend_type": _APIS[found.api],
        "adapter_type": _ADAPTER_TYPES.get(found.card.type, "Unknown"),
        "vendor": "",
    }
    driver = found.driver
    adapter = DescribedAdapter(kind | driver["adapter"], frozenset(driver["features"]), driver["limits"])
    return AdapterDescription(found.card, found.api, adapter)
