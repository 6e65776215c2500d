"""Users' cards: a simulated device is opened by the path of a file, and an error names all of its faults."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl.described.description import load
from polyhal.backends.sim.backend import create
from polyhal.backends.sim.selector import SimSelector, expand, parse_selector
from polyhal.forecast.cluster import parse_cluster
from polyhal.hal.core.hardware.catalogue import find
from polyhal.hal.core.hardware.profile import load_profile, profile_names
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError

TEXT = resources.files("polyhal.hal.core.hardware.cards").joinpath("rx480.toml").read_text(encoding="utf-8")


def test_a_device_is_opened_by_the_path_of_its_card(tmp_path: Path) -> None:
    path = tmp_path / "my-card 1.toml"
    path.write_text(TEXT.replace("Radeon RX 480", "My card"), encoding="utf-8")
    device = Device(f"sim:{path},compute=off")
    assert device.info.name == "Simulated My card"
    assert Device(f"sim:{path}*4:2,memory=64MiB").info.memory == 64 << 20
    assert expand(f"{path}*2") == [f"{path}*2", f"{path}*2:1"]
    assert load_profile(str(path)).peak == load_profile("rx480").peak


@pytest.mark.parametrize("text", ["a/b c.toml", "/x/y.toml*8:3", "C:\\x\\y.toml,compute=off", "y.toml,memory=64MiB"])
def test_selectors_with_paths_are_parsed_and_formatted(text: str) -> None:
    selector = parse_selector(text)
    assert selector.profile == text.partition(",")[0].partition("*")[0]
    assert parse_selector(str(selector)) == selector
    assert SimSelector(selector.profile) == parse_selector(selector.profile)


def test_an_alias_opens_a_device_of_the_same_machine() -> None:
    first, second = create("arc_a770*2"), create("a770*2:1")
    assert first.machine is second.machine
    assert (first.info.selector, second.info.selector) == ("a770*2", "a770*2:1")


def test_files_that_are_not_cards_are_rejected(tmp_path: Path) -> None:
    texts = {
        "binary": b"\xff\xfe\x00",
        "wrong": b"[performance\n",
        "old": b"[device]\ntitle = 'x'\n[driver]\nlaunch_us = 3\n",
        "faulty": TEXT.replace("bandwidth_gb_s = 256", "bandwidth_gb_s = -1").replace("sync_us", "sink_us").encode(),
    }
    for name, data in texts.items():
        (tmp_path / f"{name}.toml").write_bytes(data)
    for name, problem in [
        ("missing", "missing.toml cannot be read: No such file"),
        ("binary", "binary.toml cannot be read: it is not UTF-8 text"),
        ("wrong", r"wrong.toml is not a TOML file: Expected ']'"),
        ("old", r"old.toml is not a card; this is a profile of an earlier version: move title and type of \[device\]"),
        (
            "faulty",
            (
                r"faulty.toml has 3 faults: \[performance\] has bandwidth_gb_s = -1 \(expected a number above 0\); "
                r"\[performance.overhead\] has an unknown sink_us = 40 \(expected sync_us\); "
                r"\[performance.overhead\] lacks sync_us \(expected a number, 0 or more\)"
            ),
        ),
    ]:
        with pytest.raises(DeviceUnavailableError, match=problem):
            Device(f"sim:{tmp_path / name}.toml")


def test_a_profile_of_an_earlier_version_is_converted_as_its_error_says(tmp_path: Path) -> None:
    old = """
        [device]
        title = "Mine"
        type = "gpu"
        compute_units = 16
        clock_mhz = 0
        memory_gib = 1
        max_allocation_gib = 0.5
        local_memory_kib = 32
        bandwidth_gb_s = 64
        [peak_tflop_s]
        float32 = 2
        [efficiency]
        default = 1
        memory = 1
        [driver]
        launch_us = 2
        submit_us = 1
        sync_us = 5
        watchdog_s = 2
        [link]
        kind = "unknown"
        bandwidth_gb_s = 4
        latency_us = 2
        dma_engines = 2
        unified_memory = false
        [peer_link]
        kind = "unknown"
        bandwidth_gb_s = 5
        latency_us = 2
    """
    path = tmp_path / "mine.toml"
    path.write_text(old, encoding="utf-8")
    with pytest.raises(ValueError, match=r"move title and type of \[device\] to the top of the file, add vendor there"):
        load_profile(str(path))
    tables = old.replace('title = "Mine"', "").replace('type = "gpu"', "")
    for before, after in [
        ("device", "performance"),
        ("driver", "performance.overhead"),
        ("link", "links.host"),
        ("peer_link", "links.peer"),
        ("peak_tflop_s", "performance.peak_tflop_s"),
        ("efficiency", "performance.efficiency"),
    ]:
        tables = tables.replace(f"[{before}]", f"[{after}]")
    path.write_text(f'title = "Mine"\ntype = "gpu"\nvendor = ""\n{tables}', encoding="utf-8")
    found = load_profile(str(path))
    assert (found.launch_ns, found.link.bandwidth, found.peer_link.bandwidth) == (2000, 4e9, 5e9)


@pytest.mark.parametrize("name", profile_names())
def test_simulated_described_and_planned_devices_of_a_card_agree(name: str) -> None:
    card, profile, simulated = find(name), load_profile(name), Device(f"sim:{name},compute=off").info
    planned = parse_cluster(f"2x{name}")
    assert (planned.device, planned.memory, planned.inside) == (name, profile.memory, profile.peer_link)
    assert (simulated.name, simulated.vendor, simulated.type) == (f"Simulated {card.title}", card.vendor, card.type)
    if card.has("driver.opencl"):
        described = OpenCLDescribedBackend(load(name))
        assert (described.info.name, described.info.type) == (f"{card.title} (described)", card.type)
        assert described.features.profile == card.family
        assert described.features.compute_units == profile.compute_units
        # A driver reserves a part of the memory.
        assert 0.9 * profile.memory <= described.info.memory <= profile.memory
