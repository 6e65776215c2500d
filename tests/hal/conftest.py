"""Fixtures of tests of the choice of devices."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def speeds_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Switch measurements on, with an empty cache. Returns the folder of results."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "5")
    for name in ("POLYHAL_DEVICE", "POLYHAL_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "speeds"
