"""Physical cards: two drivers of one card are one device, two equal cards are two devices, and AMD's have product names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from polyhal.backends.opencl import discovery, identity

_MAC, _AMD = SimpleNamespace(name="Apple"), SimpleNamespace(name="AMD Accelerated Parallel Processing")
_AMD_QUERY = "cl_amd_device_attribute_query"


def card(name: str, **attributes: Any) -> Any:
    """Return a graphics card as its driver lists it."""
    facts = {
        "name": name,
        "version": "OpenCL 1.2 ",
        "driver_version": "1.2",
        "available": True,
        "profile": "FULL_PROFILE",
        "extensions": "",
        "compiler_available": True,
        "type": cl.device_type.GPU,
        "global_mem_size": 6 << 30,
        "host_unified_memory": False,
        "vendor": "AMD",
    }
    return SimpleNamespace(**{**facts, **attributes})


def radeon(bus: int, board: str = "AMD Radeon RX 6800") -> Any:
    """Return a card of AMD's own driver. Its bus is a signed char."""
    topology = SimpleNamespace(bus=bus, device=0, function=0)
    return card("gfx1030", extensions=_AMD_QUERY, board_name_amd=f"{board}\0", topology_amd=topology)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that discovers the devices of (platform, device) pairs."""

    def discover(*listed: tuple[Any, Any]) -> list[Any]:
        monkeypatch.setattr(discovery, "_listed", lambda: (list(listed), []))
        return [d.info for d in discovery.devices()]

    return discover


def test_two_cards_with_equal_ids_are_two_devices(found: Any) -> None:
    """Cards of a Mac Pro have no PCI addresses and UUIDs."""
    first, second = found((_MAC, card("AMD Radeon HD - FirePro D500")), (_MAC, card("AMD Radeon HD - FirePro D500")))
    assert first.id != second.id
    assert [d.id for d in found((_MAC, card("FirePro")), (_MAC, card("FirePro")))] == [
        d.id for d in found((_MAC, card("FirePro")), (_MAC, card("FirePro")))
    ]


def test_a_card_that_two_drivers_list_is_one(found: Any) -> None:
    other = SimpleNamespace(name="Another driver")
    assert len(found((_MAC, card("FirePro")), (other, card("FirePro")))) == 1
    assert (
        len(found((_MAC, card("FirePro")), (_MAC, card("FirePro")), (other, card("FirePro")), (other, card("FirePro"))))
        == 2
    )


def test_cards_of_amd_have_the_names_of_products(found: Any) -> None:
    (info,) = found((_AMD, radeon(3)))
    assert info.name == "AMD Radeon RX 6800 (gfx1030)"
    (info,) = found((_AMD, radeon(3, board="")))
    assert info.name == "gfx1030"


def test_a_card_without_a_product_name_stays_usable() -> None:
    class Refusing(SimpleNamespace):
        @property
        def board_name_amd(self) -> str:
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    assert identity.product_name(Refusing(name="Hawaii ", extensions=_AMD_QUERY)) == "Hawaii"


def test_the_domain_of_a_card_comes_from_linux(found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_PCI_DEVICES", tmp_path)
    for address, vendor in (("0001:03:00.0", "0x1002"), ("0000:03:00.0", "0x8086"), ("0002:83:00.0", "0x1002")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "vendor").write_text(f"{vendor}\n")
    assert [d.id for d in found((_AMD, radeon(3)), (_AMD, radeon(0x83 - 256)))] == [
        "pci/0001:03:00.0",
        "pci/0002:83:00.0",
    ]
    assert [d.id for d in found((_AMD, radeon(9)))] == ["pci/0000:09:00.0"]
    # Two cards at one address in different domains: the driver does not report domains.
    (tmp_path / "0003:03:00.0").mkdir()
    (tmp_path / "0003:03:00.0" / "vendor").write_text("0x1002\n")
    assert len(found((_AMD, radeon(3)), (_AMD, radeon(3)))) == 2
