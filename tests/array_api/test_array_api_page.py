"""The page of the Array API shows the committed counts."""

from __future__ import annotations

from tests.array_api.page import PAGE, load, with_tables


def test_the_page_shows_the_committed_counts() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text, load()) == text


def test_recorded_devices_agree() -> None:
    """wgpu has no float64, which some functions of SciPy ask for."""
    for result in load():
        assert result.agree == result.functions
        assert result.libraries is not None
        failed = result.libraries["failed"].values()
        assert all(result.device == "wgpu" and "no float64" in problem for problem in failed)
