"""Generated files are what `make generate` writes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from polyhal.hal.ops import BUILT_IN, METHODS, OPS, PUBLIC
from tools import coverage_columns, generate
from tools.generate import generated, outdated

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return generated(ROOT)


def test_every_generated_file_is_what_the_command_writes(files: dict[str, str]) -> None:
    assert outdated(ROOT, files) == [], "out of date: run `make generate`"


def test_the_command_writes_what_is_out_of_date_and_no_more(
    tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "generated", lambda root, device_of: files)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    stub = tmp_path / "frontend" / "functions.pyi"
    stub.write_text("def gone() -> None: ...", encoding="utf-8")
    assert generate.main(["--root", str(tmp_path), "--check"]) == 1
    assert stub.read_text(encoding="utf-8") != files["frontend/functions.pyi"]
    assert generate.main(["--root", str(tmp_path)]) == 0
    assert generate.main(["--root", str(tmp_path), "--check"]) == 0
    assert stub.read_text(encoding="utf-8") == files["frontend/functions.pyi"]
    assert capsys.readouterr().out.splitlines()[:2] == ["frontend/functions.pyi"] * 2


def test_a_change_that_breaks_backends_is_not_written_over(tmp_path: Path) -> None:
    pinned = next((ROOT / "tests" / "hal").glob("contract_v*.txt"))
    copy = tmp_path / "tests" / "hal" / pinned.name
    copy.parent.mkdir(parents=True)
    copy.write_text(
        pinned.read_text(encoding="utf-8").replace("fill(value, out)", "fill(out, value)"), encoding="utf-8"
    )
    with pytest.raises(ValueError, match="raise API_VERSION"):
        generated(tmp_path)


def test_a_new_op_is_unknown_on_devices_that_are_not_at_hand(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs the devices of the page to add an op."""
    op = replace(OPS["softplus"], name="softplosion")
    for table, entry in ((OPS._ops, op), (PUBLIC, op.call), (METHODS, op.call)):
        monkeypatch.setitem(table, op.name, entry)
    monkeypatch.setattr(coverage_columns, "BUILT_IN", BUILT_IN | {op.name})
    changed = {p: t for p, t in generated(ROOT).items() if files[p] != t}
    assert set(changed) == {
        "hal/ops/methods.pyi",
        "frontend/__init__.pyi",
        "frontend/functions.pyi",
        "docs/coverage.md",
        "docs/data/coverage/numpy.json",
    }
    (row,) = [line for line in changed["docs/coverage.md"].splitlines() if "softplosion" in line]
    assert row.count(" ? |") == len(list((ROOT / "docs" / "data" / "coverage").glob("*.json"))) - 1
