"""Devices among adapters: each card once, with 64-bit integers if any of its APIs supports them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.nn import functional as F

INTEGERS = ["shader-int64"]


def listed(name: str, api: str, features: list[str], device_id: int = 0) -> Any:
    """Return an adapter as listed by wgpu."""
    info = {
        "backend_type": api,
        "adapter_type": "IntegratedGPU",
        "device": name,
        "description": "",
        "vendor": "",
        "vendor_id": 0x14E4,
        "device_id": device_id,
    }
    return SimpleNamespace(info=info, features=features)


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that replaces wgpu's adapters."""
    wgpu = pytest.importorskip("wgpu")
    found: list[Any] = []
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: found)
    return found


@pytest.mark.parametrize("api", ["Vulkan", "D3D12", "OpenGL"])
def test_an_adapter_without_64_bit_integers_is_a_device_that_reports_it(adapters: list[Any], api: str) -> None:
    adapters[:] = [listed("V3D 4.2", api, []), listed("Good", "Vulkan", INTEGERS, 1)]
    found = {d.name: d for d in discovery.probe()}
    assert (found["Good"].lacks, found["V3D 4.2"].lacks) == ("", "64-bit integers")
    assert sorted(d.selector for d in found.values()) == ["0", "1"]
    assert discovery.select(found["V3D 4.2"].selector).api == api


def test_a_card_is_a_device_once_through_the_api_that_has_64_bit_integers(adapters: list[Any]) -> None:
    adapters[:] = [
        listed("NVIDIA GeForce RTX 3080", "Vulkan", [], 7),
        listed("NVIDIA GeForce RTX 3080", "D3D12", INTEGERS, 7),
        listed("NVIDIA GeForce RTX 3080/PCIe/SSE2", "OpenGL", []),
    ]
    assert [(a.info.name, a.api) for a in discovery.devices()] == [("NVIDIA GeForce RTX 3080", "D3D12")]
    assert len(discovery.probe()) == 1
    assert len(discovery.devices(every_api=True)) == 3


def test_a_card_without_64_bit_integers_is_a_device_once_through_the_best_api(adapters: list[Any]) -> None:
    adapters[:] = [listed("V3D 4.2", "OpenGLES", []), listed("V3D 4.2", "Vulkan", [], 3)]
    assert [a.api for a in discovery.devices()] == ["Vulkan"]
    assert discovery.select("opengles").api == "OpenGLES"
    with pytest.raises(
        DeviceUnavailableError, match=r"no wgpu device matches '1'; expected one of 0 = V3D 4.2 \(Vulkan\)"
    ):
        discovery.select("1")


@pytest.mark.parametrize(
    ("name", "other", "count"),
    [
        ("Mesa Intel(R) UHD Graphics 630 (CFL GT2)", "Intel(R) UHD Graphics 630 (CFL GT2)", 1),
        ("AMD Radeon RX 6800 (radeonsi, navi21, LLVM 15.0.6)", "AMD Radeon RX 6800 (RADV NAVI21)", 1),
        ("NVIDIA GeForce GT 710/PCIe/SSE2", "NVIDIA GeForce RTX 3080", 2),
    ],
)
def test_cards_are_distinguished_by_name_if_an_api_has_no_ids(
    adapters: list[Any], name: str, other: str, count: int
) -> None:
    adapters[:] = [listed(name, "OpenGL", []), listed(other, "Vulkan", INTEGERS, 5)]
    assert len(discovery.devices()) == count


def test_cards_of_similar_names_without_64_bit_integers_are_distinct(adapters: list[Any]) -> None:
    adapters[:] = [listed("Mali-G78", "Vulkan", [], 1), listed("Mali-G78 MC20", "Vulkan", [], 2)]
    assert len(discovery.devices()) == 2


class _WithoutFeatures:
    """An adapter without optional features."""

    features: frozenset[str] = frozenset()

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


def _losses(device: Device) -> list[float]:
    """Train a classifier, with int64 labels on the host, and return the losses."""
    ph.manual_seed(0)
    rng = np.random.default_rng(0)
    x = ph.tensor(rng.normal(size=(16, 8)).astype(np.float32), device=device)
    labels = ph.tensor(rng.integers(0, 3, 16), device=device)
    embedding = nn.Embedding(3, 8).to(device)
    head = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3)).to(device)
    optimizer = optim.AdamW([*embedding.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(head(x + embedding(labels.flip(0))), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_an_adapter_without_optional_features_trains_a_classifier() -> None:
    try:
        found = discovery.devices()[0]
    except RuntimeError as error:
        pytest.skip(str(error))
    small = Device.opened("wgpu:features=none", open_adapter(replace(found, native=_WithoutFeatures(found.native))))
    assert ph.int64 not in small.capabilities.storage
    # Sums of float32 in another order: 1e-6 relative at each step, which a few steps of AdamW amplify.
    np.testing.assert_allclose(_losses(small), _losses(Device("numpy")), rtol=1e-3)
