"""Changed kernels and shared builds without a device: verdicts, claims, recorded calls."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.library import KernelOverrides, Verdict, digest
from polyhal.hal.core.kernels.prebuild import BuildClaims
from polyhal.hal.layout import ScalarSpec, Spec, contiguous

INFO = DeviceInfo("made-up", "Card", DeviceType.GPU, 1 << 30, "1.0", "fake/card")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create empty folders; returns the folder of changed kernels."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYHAL_KERNELS", str(tmp_path / "kernels"))
    (tmp_path / "kernels").mkdir()
    return tmp_path / "kernels"


def judged(text: str, problem: str = "") -> Verdict:
    return Verdict(digest(text), problem, 1.2, "2026-01-02")


def test_a_changed_kernel_is_used_after_it_has_passed_on_this_device(folders: Path) -> None:
    assert KernelOverrides(INFO).text("a.cl") is None
    (folders / "a.cl").write_text("new")
    with pytest.warns(UserWarning, match="has not been checked on this device"):
        assert KernelOverrides(INFO).text("a.cl") is None
    KernelOverrides(INFO).store("a.cl", judged("new"))
    assert KernelOverrides(INFO).text("a.cl") == "new"
    with pytest.warns(UserWarning, match="has not been checked"):
        assert KernelOverrides(replace(INFO, driver="2.0")).text("a.cl") is None
    (folders / "a.cl").write_text("newer")
    with pytest.warns(UserWarning, match="has changed since it was checked"):
        assert KernelOverrides(INFO).text("a.cl") is None


def test_a_kernel_that_failed_is_rejected_with_the_reason(folders: Path) -> None:
    (folders / "a.cl").write_text("new")
    KernelOverrides(INFO).store("a.cl", judged("new", "element 3 is off"))
    with pytest.warns(UserWarning, match="element 3 is off"):
        assert KernelOverrides(INFO).text("a.cl") is None


def test_a_check_uses_either_side_regardless_of_the_verdict(folders: Path) -> None:
    (folders / "a.cl").write_text("new")
    overrides = KernelOverrides(INFO)
    overrides.under_test = frozenset({"a.cl"})
    assert overrides.text("a.cl") == "new"
    overrides.shipped_only = True
    assert overrides.text("a.cl") is None


@pytest.mark.parametrize("damage", ["{", "[]", '{"schema": 1}', '{"schema": 1, "verdicts": {"a.cl": {"digest": 1}}}'])
def test_damaged_verdicts_count_as_none(damage: str, folders: Path) -> None:
    (folders / "a.cl").write_text("new")
    KernelOverrides(INFO).store("a.cl", judged("new"))
    (file,) = (folders.parent / "cache" / "kernels").iterdir()
    file.write_text(damage)
    with pytest.warns(UserWarning, match="has not been checked"):
        assert KernelOverrides(INFO).text("a.cl") is None
    KernelOverrides(INFO).store("a.cl", judged("new"))
    assert KernelOverrides(INFO).text("a.cl") == "new"


def test_a_program_is_claimed_by_one_process_only(tmp_path: Path) -> None:
    claims = [BuildClaims(tmp_path) for _ in range(8)]
    won: list[list[str]] = [[] for _ in claims]

    def work(i: int) -> None:
        won[i] = [str(n) for n in range(50) if claims[i]("a.cl", str(n))]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(claims))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted((n for w in won for n in w), key=int) == [str(n) for n in range(50)]
    winner = next(i for i, w in enumerate(won) if w)
    assert claims[winner]("a.cl", won[winner][0]), "a claim stays with its process"


CALL = KernelCall(
    "cast",
    (contiguous(dtypes.float32, (2, 3)), ScalarSpec(dtypes.int64), None, Spec(dtypes.bool_, (3, 2), (-1, 3), False)),
    (contiguous(dtypes.float16, (2, 3)),),
    {"dtype": dtypes.float16, "axis": (0, 1), "scale": None, "eps": 1e-5, "causal": True, "approximate": "tanh"},
)


def test_logged_calls_are_returned_once_each() -> None:
    other = replace(CALL, op="other")
    KernelCallLog(INFO).add(CALL, ["p1"])
    record = KernelCallLog(INFO)
    record.add(CALL, ["p1"])  # known from the file
    record.add(CALL, ["p2"])  # a program of another driver
    record.add(other, ["p3"])
    assert KernelCallLog(INFO).calls() == [CALL, other]
    assert KernelCallLog(replace(INFO, driver="2.0")).calls() == [CALL, other]
    assert KernelCallLog(replace(INFO, name="Other")).calls() == []


def test_a_damaged_or_read_only_log_is_not_an_error(tmp_path: Path) -> None:
    KernelCallLog(INFO).add(CALL, ["p1"])
    (file,) = (tmp_path / "cache" / "calls").iterdir()
    whole = file.read_text()
    file.write_text('{"op": 3}\n[1]\n{"programs": [], "op": "x"}\nnot json\n' + whole + whole[:40])
    assert KernelCallLog(INFO).calls() == [CALL]
    KernelCallLog(INFO).add(replace(CALL, params={"strange": object()}), ["p9"])
    assert KernelCallLog(INFO).calls() == [CALL]
    file.unlink()
    (tmp_path / "cache" / "calls").rmdir()
    (tmp_path / "cache" / "calls").write_text("in the way")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelCallLog(INFO).add(CALL, ["p1"])
    assert KernelCallLog(INFO).calls() == []
