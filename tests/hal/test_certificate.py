"""Certificates: content, storage, and rejection of damaged files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_kernels as faulty
import pytest

from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.hal.system.reference.tolerances import EXACT, Bound, largest_error
from polyhal.hal.testing import Expectations, Scope
from polyhal.hal.testing.certification.certificate import Certificate, certificate_path, read, stored, write
from polyhal.hal.testing.certification.certify import certify


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache folder for this test only."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def certificate() -> Certificate:
    """Return the certificate of a device with one broken kernel."""
    return certify(faulty.opened(faulty.WrongResult()), only="*/softmax/*", scope=Scope(small=True))


def test_it_contains_the_findings(certificate: Certificate) -> None:
    assert certificate.identity.device == certificate.info["name"]
    assert (certificate.identity.backend, certificate.identity.driver) == ("faulty", "1.0")
    assert certificate.scope == {"small": True, "full": False, "few_shapes": False, "only": "*/softmax/*"}
    assert not certificate.whole
    row = certificate.results["softmax"]
    assert set(row) == {"float16", "bfloat16", "float32", "float64"}
    assert set(row["float32"].how) == {ResolutionStep.COMPOSED}
    assert set(row["float16"].how) == {ResolutionStep.NATIVE}
    assert row["float32"].worst_ulp is not None
    assert 0 < row["float32"].worst_ulp < 4, "of the kernel that is used, not of the skipped one"
    assert (row["float32"].passed, row["float32"].failed) == (3, 0)
    finding = next(f for f in certificate.findings if f.case == "forward/softmax/float32")
    assert finding.call.startswith("softmax(float32[7], axis=0) [sample 0]")
    assert (finding.place, finding.got, finding.right) == ("(0,)", "0.00322532514", True)
    assert finding.expected.startswith("0.00319339161 within ")
    assert finding.how == "native kernel wrong rows"
    assert finding.now == "quarantined: softmax of float32, native kernel; it now runs as its decomposition, correctly"


def test_it_is_stored_and_read(certificate: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "certificate.json"
    write(certificate, path)
    assert read(path) == certificate
    assert json.loads(path.read_text())["correct"] is True


def test_one_is_stored_per_driver(certificate: Certificate) -> None:
    device = faulty.opened(faulty.WrongResult())
    found, why = stored(device)
    assert found is None
    assert "was not verified" in why
    write(certificate, certificate_path(device))
    assert stored(device) == (certificate, "")
    assert stored(faulty.opened(faulty.WrongResult("2.0")))[0] is None
    other = certificate_path(faulty.opened(faulty.WrongResult("2.0")))
    certificate_path(device).rename(other)
    found, why = stored(faulty.opened(faulty.WrongResult("2.0")))
    assert found is None
    assert "was issued for" in why


def _changes(good: dict[str, Any]) -> list[Any]:
    def of(**changes: Any) -> dict[str, Any]:
        return {**good, **changes}

    return [
        of(identity={"backend": "numpy"}),
        of(results={"softmax": {"float32": {"how": {"sideways": 1}, "worst_ulp": 1, "passed": 1, "failed": 0}}}),
        of(results={"softmax": 3}),
        of(results=None),
        of(findings=[{"case": "forward/add"}]),
        of(findings=[{**good["findings"][0], "right": "yes"}]),
        of(quarantined=[{"op": "softmax"}]),
        of(date="yesterday"),
        of(seconds="long"),
        of(scope={"small": True}),
        of(info={}),
        of(limits=None),
        {k: v for k, v in good.items() if k != "passed"},
    ]


def test_damaged_files_are_rejected(certificate: Certificate, tmp_path: Path) -> None:
    path = certificate_path(faulty.opened(faulty.WrongResult()))
    write(certificate, path)
    good = json.loads(path.read_text())
    for change in _changes(good):
        path.write_text(json.dumps(change))
        with pytest.raises(CorruptFileError, match="not a certificate"):
            read(path)
        found, why = stored(faulty.opened(faulty.WrongResult()))
        assert found is None
        assert why.startswith("the certificate is ignored")
    path.write_text("{")
    with pytest.raises(CorruptFileError, match="not valid JSON"):
        read(path)
    path.write_text(json.dumps({**good, "schema": 99}))
    with pytest.raises(IncompatibleFileError, match="schema 99"):
        read(path)


def test_a_failed_write_leaves_the_old_file(certificate: Certificate, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write(certificate, path)
    with pytest.raises(TypeError):
        write(replace(certificate, system=object()), path)  # type: ignore[arg-type]
    assert read(path) == certificate
    assert list(tmp_path.glob(".tmp-*")) == []


def test_expected_failures_are_counted_separately() -> None:
    known = Expectations(
        unsupported={"forward/softmax/float64": "no time"}, expected_failure={"forward/softmax/float32": "driver 1.0"}
    )
    device = faulty.opened(faulty.WrongResult())
    found = certify(device, only="forward/softmax/*", expectations=known)
    assert (found.passed, found.unsupported, found.expected_failures) == (2, 1, 1)
    assert found.correct
    assert not found.quarantined
    sound = certify(faulty.opened(faulty.FaultyKernels()), only="forward/softmax/*", expectations=known)
    assert not sound.correct
    assert [(f.case, f.now) for f in sound.findings] == [("forward/softmax/float32", "remove it from the list")]


def test_errors_are_measured_in_units_at_the_magnitude_of_the_bound() -> None:
    import numpy as np

    eps = 2.0**-23
    expected, error = np.array([1.0, 1024.0, np.inf]), np.array([eps, 1024 * eps, np.nan])
    assert largest_error(float32, expected, error, Bound(EXACT)) == 1.0
    assert largest_error(float32, expected[:1], error[:1], Bound(EXACT, 9, np.array([64.0]))) == 1 / 64
    assert largest_error(float32, expected[2:], error[2:], Bound(EXACT)) == 0.0
    assert np.isfinite(largest_error(float32, np.zeros(1), np.array([1e300]), Bound(EXACT)))


def test_a_whole_run_on_numpy_is_correct() -> None:
    found = certify(Device("numpy"), scope=Scope(small=True), only="[ce]*")
    assert found.correct
    assert not found.findings
