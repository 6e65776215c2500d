"""The conformance kit as pytest tests: one per case and device, parametrised by the plug-in."""

from __future__ import annotations

import pytest

from polyhal.hal.testing.cases import Case


def test_conformance(polyhal_case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """One case on one device, with host fallbacks refused."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    polyhal_case.run()
