"""Kernels that fail on a device are found by the kit and skipped later."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import faulty_kernels as faulty
import numpy as np
import pytest

import polyhal
from polyhal.hal.compile.planning import quarantine
from polyhal.hal.compile.planning.quarantine import QuarantineEntry
from polyhal.hal.compile.planning.resolution import LayoutClass, ResolutionStep
from polyhal.hal.device import Device
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.testing import Scope
from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.certify import certify as certify_in_full

certify = functools.partial(certify_in_full, scope=Scope(small=True))
SOFTMAX = "*/softmax*"
EVERY = tuple(LayoutClass)
ENTRY = QuarantineEntry(
    ResolutionStep.NATIVE,
    "softmax",
    "float32",
    (LayoutClass.STRIDED,),
    "wrong",
    "forward/softmax/float32",
    "2026-01-02",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache folder for this test only."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    return tmp_path


def files(cache: Path) -> list[Path]:
    return sorted((cache / "quarantine").glob("*"))


def softmax(device: Device) -> np.ndarray:
    rows = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    return polyhal.tensor(rows, device=device).softmax().numpy()


def expected() -> np.ndarray:
    powers = np.exp(np.linspace(-3, 3, 12).reshape(3, 4))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def natives(certificate: Certificate) -> set[tuple[str, str]]:
    return {
        (op, d)
        for op, row in certificate.results.items()
        for d, r in row.items()
        if set(r.how) == {ResolutionStep.NATIVE}
    }


@functools.cache
def natives_if_sound() -> set[tuple[str, str]]:
    sound = certify(faulty.opened(faulty.FaultyKernels()), only=SOFTMAX)
    assert sound.correct
    return natives(sound)


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (faulty.WrongResult, "wrong result, 7 of 7 elements are off"),
        (faulty.RaisesAtLaunch, "BackendError: CL_INVALID_WORK_GROUP_SIZE"),
        (faulty.DoesNotBuild, "the kernel does not build: rows.cl:7: error: too many registers"),
        (faulty.WrongOnce, "wrong result"),
    ],
)
def test_only_a_failing_kernel_is_skipped(kind: type[faulty.FaultyKernels], failure: str) -> None:
    certificate = certify(faulty.opened(kind()), only=SOFTMAX)
    (entry,) = certificate.quarantined
    assert (entry.step, entry.op, entry.dtype, entry.layouts) == (ResolutionStep.NATIVE, "softmax", "float32", EVERY)
    assert entry.failure.startswith(failure)
    assert entry.case == "forward/softmax/float32"
    assert certificate.correct
    assert not certificate.failed
    assert set(certificate.results["softmax"]["float32"].how) == {ResolutionStep.COMPOSED}
    assert natives_if_sound() - natives(certificate) == {("softmax", "float32")}


@pytest.mark.parametrize("kind", [faulty.WrongResult, faulty.RaisesAtLaunch, faulty.DoesNotBuild])
def test_later_programs_compute_correctly_with_a_notice(kind: type[faulty.FaultyKernels]) -> None:
    certify(faulty.opened(kind()), only=SOFTMAX)
    device = faulty.opened(kind())
    np.testing.assert_allclose(softmax(device), expected(), rtol=1e-6)
    text = polyhal.explain("softmax", device, (3, 4))
    assert "softmax(float32[3, 4]): decomposed into" in text
    (entry,) = quarantine.load(device).entries
    assert f"native kernel: quarantined by `polyhal verify` on {entry.date}: {entry.failure}" in text
    assert "native kernel numpy softmax" in polyhal.explain("softmax", device, (3, 4), dtype=polyhal.float64)
    assert "native kernel numpy sum" in polyhal.explain("sum", device, (3, 4))


def test_the_quarantine_takes_effect_in_the_checking_process() -> None:
    device = faulty.opened(faulty.WrongResult())
    assert not np.allclose(softmax(device), expected(), rtol=1e-3)
    certify(device, only=SOFTMAX)
    np.testing.assert_allclose(softmax(device), expected(), rtol=1e-6)


def test_only_the_layouts_that_fail_are_skipped() -> None:
    device = faulty.opened(faulty.WrongOnStrides())
    certificate = certify(device, only=SOFTMAX)
    (entry,) = certificate.quarantined
    assert entry.layouts == (LayoutClass.STRIDED,)
    assert entry.kernel == "softmax of float32 on strided tensors, native kernel"
    assert certificate.correct
    assert "native kernel numpy softmax" in polyhal.explain("softmax", device, (3, 4))
    x = polyhal.tensor(np.ones((4, 3), np.float32), device=device).mT
    assert x.softmax().numpy() == pytest.approx(0.25)


def test_a_kernel_inside_a_gradient_is_found() -> None:
    certificate = certify(faulty.opened(faulty.WrongGradient()), only="gradient/softmax/float32")
    assert [(e.step, e.op, e.dtype) for e in certificate.quarantined] == [
        (ResolutionStep.NATIVE, "softmax_grad", "float32")
    ]
    assert certificate.correct


def test_an_optional_name_of_a_core_method_is_skipped() -> None:
    certificate = certify(faulty.opened(faulty.WrongOptionalName()), only="forward/tanh/*")
    (entry,) = certificate.quarantined
    assert (entry.step, entry.op, entry.dtype) == (ResolutionStep.CORE, "tanh", "float64")
    assert certificate.correct
    assert set(certificate.results["tanh"]["float64"].how) == {ResolutionStep.COMPOSED}


def test_two_wrong_kernels_for_one_op_are_both_skipped() -> None:
    certificate = certify(faulty.opened(faulty.WrongTwice()), only="*/tanh/float64")
    assert {(e.step, e.op) for e in certificate.quarantined} == {
        (ResolutionStep.NATIVE, "tanh"),
        (ResolutionStep.CORE, "tanh"),
    }
    assert certificate.correct


def test_a_required_member_cannot_be_replaced(cache: Path) -> None:
    certificate = certify(faulty.opened(faulty.WrongRequiredName()), only="*/floor*")
    assert not certificate.correct
    assert not certificate.quarantined
    assert {f.case for f in certificate.findings} >= {"contract/unary/floor", "forward/floor/float64"}
    assert all("still wrong" in f.now for f in certificate.findings)
    assert files(cache) == []


def test_another_driver_empties_the_list() -> None:
    certify(faulty.opened(faulty.WrongResult("1.0")), only=SOFTMAX)
    assert quarantine.load(faulty.opened(faulty.WrongResult("1.0"))).entries
    newer = faulty.opened(faulty.WrongResult("1.1"))
    assert quarantine.load(newer) == quarantine.EMPTY
    assert "native kernel wrong rows" in polyhal.explain("softmax", newer, (3, 4))


def test_a_kernel_that_is_correct_again_leaves_the_list() -> None:
    broken = faulty.WrongResult()
    certify(faulty.opened(broken), only=SOFTMAX)
    mended = faulty.FaultyKernels()
    mended.info = broken.info
    assert quarantine.load(faulty.opened(mended)).entries
    certify(faulty.opened(mended), only="*/add/*")
    assert quarantine.load(faulty.opened(mended)).entries, "unchecked entries stay"
    certify(faulty.opened(mended), only=SOFTMAX)
    assert quarantine.load(faulty.opened(mended)) == quarantine.EMPTY


def test_a_check_without_keep_changes_nothing(cache: Path) -> None:
    certificate = certify(faulty.opened(faulty.WrongResult()), only=SOFTMAX, keep=False)
    assert not certificate.quarantined
    assert not certificate.correct
    assert files(cache) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 9}', '{"schema": 1}', '{"schema": 1, "identity": {}, "entries": 3}', "\xff"]
)
def test_a_damaged_list_is_ignored_with_a_reason(cache: Path, text: str) -> None:
    path = quarantine.store(faulty.opened(faulty.WrongResult()), [ENTRY])
    path.write_bytes(text.encode("latin-1"))
    again = faulty.opened(faulty.WrongResult())
    found = quarantine.load(again)
    assert not found.entries
    assert found.lines() == (found.ignored,)
    assert str(path) in found.ignored
    with pytest.warns(UserWarning, match="is ignored"):
        softmax(again)
    certify(again, only="forward/softmax/float32")
    assert quarantine.load(again).entries
    assert files(cache) == [path]


def test_entries_survive_the_file_and_others_do_not() -> None:
    good = ENTRY.to_json()
    assert QuarantineEntry.from_json(json.loads(json.dumps(good))) == ENTRY
    for change in (
        {"step": "view"},
        {"step": "lower"},
        {"layouts": []},
        {"layouts": 3},
        {"op": 1},
        {"fatal": "no"},
        {"x": 1},
    ):
        with pytest.raises(ValueError):
            QuarantineEntry.from_json({**good, **change})
    with pytest.raises(ValueError):
        QuarantineEntry.from_json("softmax")


def test_a_kernel_that_loses_the_device_is_never_run_again() -> None:
    first = certify(faulty.opened(faulty.LosesTheDevice()), only=SOFTMAX)
    assert not first.complete
    assert not first.correct
    assert [(e.op, e.fatal) for e in first.quarantined] == [("softmax", True)]
    second = certify(faulty.opened(faulty.LosesTheDevice()), only=SOFTMAX)
    assert second.correct
    assert second.passed > first.passed
    assert [(e.op, e.fatal) for e in second.quarantined] == [("softmax", True)]


_CRASH = """
import os, sys
sys.path.insert(0, {folder!r})
import faulty_kernels as faulty
from polyhal.hal.protocol import SimpleLaunch
from polyhal.hal.testing.certification.certify import certify
from polyhal.hal.testing import Scope

class Crashes(faulty.FaultyKernels):
    op = "tanh_grad" if {case!r}.startswith("gradient") else "softmax"
    def spoil(self, launch, inputs):
        return SimpleLaunch("crash", lambda *args: os._exit(9))
    def unary(self, op, x, out):
        if {case!r}.startswith("contract") and op == "floor":
            os._exit(9)
        super().unary(op, x, out)

c = certify(faulty.opened(Crashes()), scope=Scope(small=True), only={only!r})
print(c.correct, [(e.op, e.fatal) for e in c.quarantined], [f.problem for f in c.findings])
"""


def _crash(case: str, only: str) -> subprocess.CompletedProcess[str]:
    code = _CRASH.format(folder=str(Path(faulty.__file__).parent), case=case, only=only)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)


def test_a_kernel_that_ends_the_process_is_never_run_again(cache: Path) -> None:
    assert _crash("forward/softmax/float32", SOFTMAX).returncode == 9
    again = _crash("forward/softmax/float32", SOFTMAX)
    assert again.stdout.splitlines() == ["True [('softmax', True)] []"], again.stderr
    assert not [p for p in files(cache) if p.suffix == ".running"]


def test_a_check_that_ends_the_process_without_a_suspect_kernel_is_skipped() -> None:
    assert _crash("contract/unary/floor", "contract/unary/*").returncode == 9
    again = _crash("contract/unary/floor", "contract/unary/*")
    assert again.stdout.splitlines() == ["False [] ['the process ended during this check in an earlier run']"], (
        again.stderr
    )


def test_a_kernel_that_does_not_build_warns_once_and_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYHAL_STRICT")
    device = faulty.opened(faulty.DoesNotBuild())
    with pytest.warns(
        UserWarning, match="does not build, so a slower implementation runs: rows.cl:7: error: too many registers"
    ):
        np.testing.assert_allclose(softmax(device), expected(), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = polyhal.explain("softmax", device, (5, 4))
    assert "passed over native kernel: it does not build: rows.cl:7: error: too many registers" in text
    monkeypatch.setenv("POLYHAL_STRICT", "1")
    with pytest.raises(KernelBuildError, match="options: -O3"):
        polyhal.explain("softmax", device, (6, 4))


def test_the_kit_also_checks_quarantined_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an earlier list nor a softer policy may make a broken kernel pass."""
    from polyhal.hal.testing import verify

    monkeypatch.delenv("POLYHAL_STRICT")
    for kind in (faulty.WrongResult, faulty.DoesNotBuild):
        certify(faulty.opened(kind()), only=SOFTMAX)
        assert not verify(faulty.opened(kind()), only="forward/softmax/float32", scope=Scope(small=True)).ok
