"""What tests of choosing devices share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def speeds_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Switch measuring on, with nothing remembered. Returns the folder in which results are kept."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("POLYHAL_MEASURE_TIMEOUT", "5")
    for name in ("POLYHAL_DEVICE", "POLYHAL_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "speeds"
