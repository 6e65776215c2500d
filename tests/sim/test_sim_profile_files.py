"""User profiles: a device is opened by the path of a file, and each key of the file is checked."""

from __future__ import annotations

import copy
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from polyhal.backends.sim.profile import load_profile, profile_names
from polyhal.backends.sim.profile_keys import check
from polyhal.backends.sim.selector import SimSelector, expand, parse_selector
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError


def text_of(name: str) -> str:
    """Return the text of a built-in profile."""
    return resources.files("polyhal.backends.sim.profiles").joinpath(f"{name}.toml").read_text(encoding="utf-8")


TABLES = tomllib.loads(text_of("h200"))
REQUIRED = [
    *[("device", k) for k in TABLES["device"]],
    *[("driver", k) for k in TABLES["driver"] if k != "replay_us"],
    *[("link", k) for k in TABLES["link"]],
    ("peak_tflop_s", "float32"), ("efficiency", "default"), ("efficiency", "memory"),
]  # fmt: skip


def test_a_device_is_opened_by_the_path_of_its_profile(tmp_path: Path) -> None:
    path = tmp_path / "my-card 1.toml"
    path.write_text(text_of("rx480").replace("Radeon RX 480", "My card"), encoding="utf-8")
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


@pytest.mark.parametrize("name", profile_names())
def test_all_keys_of_the_profiles_are_known(name: str) -> None:
    check(tomllib.loads(text_of(name)))


@pytest.mark.parametrize(("table", "key"), REQUIRED)
def test_errors_name_a_key_that_is_missing_or_not_a_number(table: str, key: str) -> None:
    for spoil, problem in [
        (lambda t: t.pop(key), f"[{table}] lacks {key}"),
        (lambda t: t.update({key: [1]}), f"{key} in [{table}] is [1]; expected"),
        (lambda t: t.update({key: float("nan")}), f"{key} in [{table}] is nan; expected"),
        (lambda t: t.update({f"{key}s": "1"}), f"{key}s"),
    ]:
        tables: dict[str, Any] = copy.deepcopy(TABLES)
        spoil(tables[table])
        with pytest.raises(ValueError) as error:
            check(tables)
        assert problem in str(error.value)


def test_all_missing_keys_are_named_at_once() -> None:
    tables: dict[str, Any] = copy.deepcopy(TABLES)
    for table, key in REQUIRED:
        del tables[table][key]
    with pytest.raises(ValueError) as error:
        check(tables)
    assert all(key in str(error.value) for _, key in REQUIRED)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda t: t.pop("driver"), "the table [driver] is missing"),
        (lambda t: t.update(shape={}), "[shape] is not a table of a profile; expected peak_tflop_s"),
        (lambda t: t["device"].update(bandwidth_gb_s=-1), "bandwidth_gb_s in [device] is -1; expected more than 0"),
        (lambda t: t["driver"].update(sync_us=-1), "sync_us in [driver] is -1; expected 0 or more"),
        (lambda t: t["shapes"]["packing_gb_s"].update(image="x"), "image of packing_gb_s in [shapes] is 'x'; expected"),
        (lambda t: t["link"].update(unified_memory=1), "unified_memory in [link] is 1; expected true or false"),
        (lambda t: t["device"].update(compute_units=True), "compute_units in [device] is True; expected a whole number"),
    ],
)  # fmt: skip
def test_errors_name_the_problem_of_a_profile(spoil: Any, problem: str) -> None:
    tables = copy.deepcopy(TABLES)
    spoil(tables)
    with pytest.raises(ValueError) as error:
        check(tables)
    assert problem in str(error.value)


def test_files_that_are_not_profiles_are_rejected(tmp_path: Path) -> None:
    missing, binary, wrong = (str(tmp_path / f"{n}.toml") for n in ("missing", "binary", "wrong"))
    Path(binary).write_bytes(b"\xff\xfe\x00")
    Path(wrong).write_text("[device\n", encoding="utf-8")
    for path, problem in [
        (missing, "missing.toml cannot be read: No such file"),
        (binary, "binary.toml cannot be read: it is not UTF-8 text"),
        (wrong, "wrong.toml is not a valid profile: Expected ']'"),
    ]:
        with pytest.raises(DeviceUnavailableError, match=problem):
            Device(f"sim:{path}")
