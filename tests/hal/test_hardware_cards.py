"""The catalogue of cards: every file is valid, every fault of a file is reported, and names are unambiguous."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.hal.core.hardware.card_schema import CARD
from polyhal.hal.core.hardware.catalogue import Card, find, names, parse
from polyhal.hal.core.settings.toml_schema import Fault, FaultyFileError, Key, TableSchema, checked, faults

CARDS = names()
TABLES = {name: dict(find(name).tables) for name in CARDS}

Where = tuple[str, ...]


def leaves(tables: Any, schema: TableSchema, path: Where = ()) -> Iterator[tuple[Where, Key | None]]:
    """Yield the paths of all values of a card that have a schema, and of its tables (with None)."""
    for name, value in tables.items():
        expected = schema.keys.get(name, schema.others)
        if isinstance(expected, TableSchema):
            yield (*path, name), None
            yield from leaves(value, expected, (*path, name))
        else:
            yield (*path, name), expected


def is_required(path: Where) -> bool:
    """Return whether the schema requires a key."""
    schema: Key | TableSchema = CARD
    for name in path:
        assert isinstance(schema, TableSchema)
        if name not in schema.keys:
            return False
        schema = schema.keys[name]
    return not schema.optional


def parent(tables: Any, path: Where) -> Any:
    """Return the table that holds a key."""
    for name in path[:-1]:
        tables = tables[name]
    return tables


def path_of(fault: Fault) -> Where:
    return (*(fault.section.split(".") if fault.section else ()), fault.key)


@pytest.mark.parametrize("name", CARDS)
def test_every_card_is_valid_and_complete(name: str) -> None:
    card = find(name)
    assert checked(name, card.tables, CARD) == card.tables
    assert card.family
    assert card.tables.keys() - {"title", "vendor", "type", "family", "aliases"}, "it describes nothing"
    assert card.has("performance") == card.has("links.host")
    for driver in card.tables.get("driver", {}).values():
        assert driver["sources"]
        assert driver["estimated"] == sorted(set(driver["estimated"]))


def test_names_and_aliases_are_unambiguous() -> None:
    known = [*CARDS, *(alias for name in CARDS for alias in find(name).aliases)]
    assert len(set(known)) == len(known)
    assert find("arc_a770") is find("a770")
    titles = [find(name).title for name in CARDS]
    assert len(set(titles)) == len(titles)


@given(st.data())
def test_each_key_that_is_removed_or_broken_is_reported_and_no_other(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(CARDS))
    tables = copy.deepcopy(TABLES[name])
    known = dict(leaves(tables, CARD))
    chosen = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=6, unique=True))
    expected = set()
    for path in chosen:
        if any(path[: len(other)] == other or other[: len(path)] == path for other in chosen if other != path):
            continue  # a removed table hides faults in it
        holder = parent(tables, path)
        spoil = data.draw(st.sampled_from(["remove", "retype", "range", "misspell"]))
        key = known[path]
        if spoil == "range" and key is not None and key.type in (int, float) and not key.many:
            holder[path[-1]] = data.draw(st.sampled_from([-1, float("nan"), float("inf"), 10**400]))
        elif spoil == "range" and key is not None and key.choices:
            holder[path[-1]] = ["none"] if key.many else "none"
        elif spoil == "retype":
            holder[path[-1]] = [{"x": 1}] if key is not None or data.draw(st.booleans()) else "x"
        elif spoil == "misspell" and is_required(path):
            holder[f"{path[-1]}_"] = holder.pop(path[-1])
            # The misspelled key is reported, unless its table permits any name.
            schema_faults = {path_of(f) for f in faults(tables, CARD)}
            if (*path[:-1], f"{path[-1]}_") in schema_faults:
                expected.add((*path[:-1], f"{path[-1]}_"))
        else:
            del holder[path[-1]]
            if not is_required(path):
                continue
        expected.add(path)
    assert {path_of(fault) for fault in faults(tables, CARD)} == expected


def test_a_fault_names_file_section_key_value_and_expectation() -> None:
    tables = copy.deepcopy(TABLES["h200"])
    tables["performance"]["bandwith_gb_s"] = tables["performance"].pop("bandwidth_gb_s")
    tables["performance"]["shapes"]["packing_gb_s"]["image"] = "x"
    tables["links"]["host"]["unified_memory"] = 1
    tables["performance"]["compute_units"] = True
    tables["type"] = "toaster"
    del tables["performance"]["overhead"]
    with pytest.raises(FaultyFileError) as error:
        checked("mine.toml", tables, CARD)
    assert str(error.value) == (
        "mine.toml has 7 faults: has type = 'toaster' (expected one of gpu, integrated_gpu, accelerator, cpu); "
        "[performance] has an unknown bandwith_gb_s = 4800 (expected bandwidth_gb_s); "
        "[performance] has compute_units = True (expected a whole number above 0); "
        "[performance] lacks bandwidth_gb_s (expected a number above 0); "
        "[performance.shapes.packing_gb_s] has image = 'x' (expected a number above 0); "
        "[performance] lacks overhead (expected a table with launch_us, submit_us, sync_us, watchdog_s); "
        "[links.host] has unified_memory = 1 (expected true or false)"
    )


def text_of(name: str) -> str:
    return resources.files("polyhal.hal.core.hardware.cards").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def test_a_standard_fills_in_its_values_and_an_unknown_one_is_a_fault() -> None:
    text = text_of("h200")
    assert parse("mine", text).section("links.host")["bandwidth_gb_s"] == 50
    own = parse("mine", text.replace('standard = "pcie5"', 'standard = "pcie5"\nbandwidth_gb_s = 45'))
    assert own.section("links.host")["bandwidth_gb_s"] == 45
    with pytest.raises(FaultyFileError) as error:
        parse("mine", text.replace('"pcie5"', '"pcie9"'))
    assert [path_of(fault) for fault in error.value.faults] == [("links", "host", "standard")]
    for name, driver in (("rx6800", "rocm"), ("a770", "intel")):
        assert find(name).section("driver.opencl.device")["max_parameter_size"] == (1024 if driver == "rocm" else 2048)
        with pytest.raises(FaultyFileError) as error:
            parse("mine", text_of(name).replace(f'"{driver}"', '"foocl"'))
        assert [path_of(fault) for fault in error.value.faults] == [("driver", "opencl", "standard")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("memory_gib = 1e30", r"memory_gib = 1e\+30 \(expected a number above 0 and below 2\^64\)"),
        (f"memory_gib = 0x{'f' * 5000}", "memory_gib = a number with too many digits"),
        (f"memory_gib = {'9' * 5000}", "mine is not a TOML file: Exceeds the limit"),
        ('memory_gib = 1\n"a\\nb" = 2', "has an unknown a\N{REPLACEMENT CHARACTER}b = 2"),
        ("memory_gib = 1979-05-27", "memory_gib = datetime.date"),
        ("[links.host]\nstandard = [1]", r"\[links.host\] has standard = \[1\] \(expected one of nvlink4"),
    ],
    ids=["large", "hexadecimal", "decimal", "control character", "date", "standard"],
)
def test_hostile_values_are_faults(line: str, problem: str) -> None:
    text = 'title = ""\nvendor = ""\ntype = "gpu"\n[performance]\n'
    with pytest.raises(ValueError, match=problem):
        parse("mine", text + line)


def test_a_card_without_a_section_is_refused_with_the_cards_that_have_it() -> None:
    text = text_of("teaching")
    card: Card = parse("mine.toml", without_links(text))
    problem = r"the card mine.toml has no section \[links.host\]; expected a card with it: a100, a770"
    with pytest.raises(ValueError, match=problem):
        card.section("links.host")


def without_links(text: str) -> str:
    """Return the text of a card up to its links."""
    assert "links" in tomllib.loads(text)
    return text.partition("[links.host]")[0]
