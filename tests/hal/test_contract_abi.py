"""The contract is frozen: third-party plug-ins must keep working."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from polyhal.hal import protocol
from tools import contract_text as pinning
from tools.contract_text import breaking_changes, contract_text

PINNED = Path(__file__).with_name(f"contract_v{protocol.API_VERSION}.txt")


def test_the_contract_is_unchanged() -> None:
    assert PINNED.exists(), f"version {protocol.API_VERSION} has no file yet: make generate"
    broken = breaking_changes(PINNED.read_text(encoding="utf-8"), contract_text())
    assert not broken, "\n".join(["contract change: raise API_VERSION", *broken])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("fill(value, out)", "fill(out, value)", "- fill(value, out); + fill(out, value)"),
        ("fill(value, out)", "fill(value, out, stream=None)", "+ fill(value, out, stream=None)"),
        ("    synchronize()\n", "", "- synchronize()"),
        ("    memory_available()\n", "    memory_available()\n    close()\n", "+ close()"),
        ("    flush()\n", "    flush(wait)\n", "protocol SupportsFlush: - flush(); + flush(wait)"),
        (
            "    selector = '0'\n    vendor = ''\n",
            "    vendor = ''\n    selector = '0'\n",
            "record DeviceInfo +: another order",
        ),
        ("    vendor = ''\n", "    vendor = ''\n    serial\n", "+ serial"),
        ("    vendor = ''\n", "    serial = ''\n    vendor = ''\n", "+ serial = ''"),
        ("    row_alignment = 1\n", "    row_alignment = 64\n", "- row_alignment = 1; + row_alignment = 64"),
        ("unary: exp", "unary: cos exp", "required names"),
        ("    float16: float, 2 bytes\n", "", "- float16: float, 2 bytes"),
        (
            "    float64: float, 8 bytes\n",
            "    float64: float, 8 bytes\n    float8: float, 1 bytes\n",
            "dtypes: + float8",
        ),
        ("    PINNED_MEMORY\n", "", "- PINNED_MEMORY"),
        ("API_VERSION = 2", "API_VERSION = 3", "+ API_VERSION = 3"),
        ("protocol SupportsFlush", "protocol Flush", "protocol SupportsFlush is gone"),
        ("    offset = 0\n", "    offset\n", "record Ref +: - offset = 0; + offset"),
    ],
)
def test_changes_that_break_backends_are_reported(old: str, new: str, told: str) -> None:
    text = contract_text()
    assert text.count(old) == 1
    assert any(told in line for line in breaking_changes(text, text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    lacks = ''\n", "    lacks = ''\n    serial = ''\n"),
        ("    distinct_memory = 0\n", "    distinct_memory = 0\n    max_bindings = 0\n"),
        ("    GRAPHS\n", "    GRAPHS\n    COLLECTIVES\n"),
        ("protocol Event\n", "protocol Collectives\n    all_reduce()\n\nprotocol Event\n"),
        ("record DeviceInfo +\n", "record Rack +\n    name\n\nrecord DeviceInfo +\n"),
        ("    ShapeError(", "    RankError(ShapeError)\n    ShapeError("),
        ("    nbytes\n", "    itemsize\n    nbytes\n"),
    ],
)
def test_compatible_changes_are_allowed(old: str, new: str) -> None:
    text = contract_text()
    assert text.count(old) == 1
    assert breaking_changes(text, text.replace(old, new)) == []


def test_the_text_follows_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Limits:
        max_allocation: int = 0

    monkeypatch.setattr(f"{pinning.__name__}.Limits", Limits)
    (told,) = breaking_changes(PINNED.read_text(encoding="utf-8"), contract_text())
    assert told.startswith("record Limits +: - row_alignment = 1")
