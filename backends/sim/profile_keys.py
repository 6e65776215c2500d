"""Required and optional keys of a profile, so that an error names a misspelled or missing key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class ProfileKey(NamedTuple):
    """One key of a table."""

    type: type
    """Type of the value: `float` also accepts integers; `dict` is a table of numbers by name."""
    optional: bool = False
    zero: bool = False
    """True if a number may be 0."""


_REQUIRED, _TIME = ProfileKey(float), ProfileKey(float, zero=True)
_LINK = {"kind": ProfileKey(str), "bandwidth_gb_s": _REQUIRED, "latency_us": _TIME}
_TABLES: dict[str, dict[str, ProfileKey]] = {
    "device": {
        "title": ProfileKey(str), "type": ProfileKey(str), "compute_units": ProfileKey(int),
        "clock_mhz": ProfileKey(int, zero=True), "memory_gib": _REQUIRED,
        "max_allocation_gib": _REQUIRED, "local_memory_kib": ProfileKey(int, zero=True),
        "bandwidth_gb_s": _REQUIRED,
    },
    "driver": {
        "launch_us": _TIME, "submit_us": _TIME, "replay_us": ProfileKey(float, optional=True, zero=True), "sync_us": _TIME,
        "watchdog_s": _REQUIRED,
    },
    "link": {**_LINK, "dma_engines": ProfileKey(int), "unified_memory": ProfileKey(bool)},
    "peer_link": _LINK,
    "cache": {"size_mib": _REQUIRED, "bandwidth_gb_s": _REQUIRED},
    "shapes": {
        "tile_outputs": ProfileKey(dict, optional=True), "split_depth": ProfileKey(int, optional=True),
        "sliced_flops": ProfileKey(dict, optional=True), "fill_depth": ProfileKey(dict, optional=True),
        "half_row": ProfileKey(float, optional=True, zero=True), "packing_gb_s": ProfileKey(dict, optional=True),
    },
}  # fmt: skip
_NUMBERS = {"peak_tflop_s": ("float32",), "efficiency": ("default", "memory"), "latency_us": ()}
"""Tables of numbers by arbitrary names, with their required names."""
_OPTIONAL = ("peer_link", "cache", "shapes", "latency_us")


def check(tables: Mapping[str, Any]) -> None:
    """Raise ValueError that names every table and key that is missing, unknown, or not of its type."""
    problems = list(_problems(tables))
    if problems:
        raise ValueError("; ".join(problems))


def _problems(tables: Mapping[str, Any]) -> Iterator[str]:
    for name in tables:
        if name not in _TABLES and name not in _NUMBERS:
            yield f"[{name}] is not a table of a profile; expected {', '.join([*_NUMBERS, *_TABLES])}"
    for name in (*_NUMBERS, *_TABLES):
        table = tables.get(name)
        if not isinstance(table, dict):
            if name in _OPTIONAL and name not in tables:
                continue
            yield f"the table [{name}] is missing"
            table = {}
        keys = _TABLES.get(name) or dict.fromkeys((*table, *_NUMBERS[name]), _REQUIRED)
        yield from _problems_of_keys(name, table, keys)


def _problems_of_keys(name: str, table: Mapping[str, Any], keys: Mapping[str, ProfileKey]) -> Iterator[str]:
    for key in table:
        if key not in keys:
            yield f"[{name}] is missing {key}; expected {', '.join(keys)}"
    missing = [key for key, expected in keys.items() if key not in table and not expected.optional]
    if missing:
        yield f"[{name}] lacks {', '.join(missing)}"
    for key, expected in keys.items():
        if key in table:
            yield from _problems_of_value(f"{key} in [{name}]", table[key], expected)


def _problems_of_value(what: str, value: Any, expected: ProfileKey) -> Iterator[str]:
    if expected.type is dict and isinstance(value, dict):
        for name, entry in value.items():
            yield from _problems_of_value(f"{name} of {what}", entry, _REQUIRED)
        return
    types = (int, float) if expected.type is float else expected.type
    if not isinstance(value, types) or (isinstance(value, bool) and expected.type is not bool):
        yield f"{what} is {value!r}; expected {_EXPECTED[expected.type]}"
        return
    number: Any = value
    if expected.type in (int, float) and not (math.isfinite(number) and number >= 0 and (number or expected.zero)):
        yield f"{what} is {value!r}; expected {'0 or more' if expected.zero else 'more than 0'}"


_EXPECTED = {
    float: "a number",
    int: "a whole number",
    str: "a text in quotes",
    bool: "true or false",
    dict: "a table of numbers",
}
