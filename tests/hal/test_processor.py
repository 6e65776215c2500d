"""Parsing of the system's description of the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyhal.hal.system.discovery import processor

DESCRIPTION = (
    "processor\t: 0\nmodel name\t: A processor\nflags\t\t: fpu avx2  avx512f\n\nprocessor\t: 1\nmodel name\t: B\n"
)


def test_the_first_processor_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(DESCRIPTION, encoding="utf-8")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    assert processor.model() == "A processor"
    assert processor.instruction_sets() == {"fpu", "avx2", "avx512f"}


def test_a_system_without_a_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "missing")
    assert processor.model()
    assert processor.instruction_sets() == frozenset()
