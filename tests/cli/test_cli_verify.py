"""`polyhal verify`: its output, its certificate and its exit code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import faulty_kernels as faulty
import pytest

from polyhal.hal.hookspecs import BackendSpec
from polyhal.hal.protocol import API_VERSION
from polyhal.hal.system.discovery.registry import Registry, registry
from polyhal.hal.testing.certification import runner

from .conftest import Command

ONLY = ("--only", "*/softmax/*")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache folder."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def devices() -> Iterator[Registry]:
    """Add one backend per fault to the registry of this process, and remove them afterwards."""
    found = registry()
    backends = dict(found.backends)
    for kind in (faulty.WrongResult, faulty.WrongRequiredName):
        backend = kind()
        name = kind.__name__
        backend.info = type(backend.info)(**{**backend.info.to_json(), "backend": name, "selector": ""})
        found.add(
            BackendSpec(
                name,
                probe=lambda backend=backend: [backend.info],
                create=lambda selector, backend=backend: backend,
                api_version=API_VERSION,
                hidden=True,
            )
        )
    yield found
    for name in set(found.backends) - set(backends):
        del found.backends[name]
        for opened in [n for n in found._open if n.startswith(name)]:
            del found._open[opened]


def test_a_correct_device(polyhal: Command, tmp_path: Path) -> None:
    outcome = polyhal("verify", "numpy", *ONLY, "--output", tmp_path / "numpy.json")
    assert outcome.code == 0, outcome.err
    assert "correct: all 12 checks pass" in outcome.out
    assert "verifying numpy: NumPy" in outcome.out
    assert json.loads((tmp_path / "numpy.json").read_text())["name"] == "numpy"
    row = next(line for line in outcome.out.splitlines() if line.startswith("norm"))
    assert row.split()[:3] == ["norm", "1", "4"]


def test_the_whole_table(polyhal: Command) -> None:
    out = polyhal("verify", "numpy", *ONLY, "--verbose").out
    row = next(line for line in out.splitlines() if line.startswith("  softmax"))
    assert row.split()[1::2] == ["N"] * 4
    assert "N native kernel" in out


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_wider_than_the_terminal(
    polyhal: Command, devices: Registry, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for options in ((), ("--verbose",)):
        out = polyhal("verify", "WrongResult", *ONLY, *options).out
        tables = [line for line in out.splitlines() if not line.startswith(("verifying", "certificate:"))]
        assert max(len(line.rstrip()) for line in tables) <= width
        assert "…" not in out


def test_a_wrong_kernel_is_quarantined_and_the_doctor_reports_it(polyhal: Command, devices: Registry) -> None:
    outcome = polyhal("verify", "WrongResult", *ONLY)
    assert outcome.code == 0
    out = " ".join(outcome.out.split())
    assert "failed: forward/softmax/float32" in out
    assert "fixed: forward/softmax/float32 call softmax(float32[7], axis=0) [sample 0] as transposed -> out" in out
    assert "got 0.00322532514 at (0,)" in out
    assert "it now runs as its decomposition, correctly" in out
    assert "correct now: all 12 checks pass, 1 kernel is in quarantine" in out
    assert "quarantined by `polyhal verify`" in polyhal("explain", "softmax", "--device", "WrongResult").out
    report = json.loads(polyhal("doctor", "--all", "--no-test", "--json").out)
    (mine,) = [d for d in report["devices"] if d["name"] == "WrongResult"]
    assert mine["quarantined"][0].startswith("softmax of float32, native kernel: quarantined by `polyhal verify`")
    assert "softmax of float32, native kernel: quarantined" in polyhal("doctor", "--all", "--no-test").out
    assert polyhal("verify", "WrongResult", "--only", "contract/identity", "--clear").code == 0
    assert "native kernel wrong rows" in polyhal("explain", "softmax", "--device", "WrongResult").out


def test_a_failure_that_cannot_be_fixed_is_an_error(polyhal: Command, devices: Registry) -> None:
    outcome = polyhal("verify", "WrongRequiredName", "--only", "*/floor/*")
    assert outcome.code == 1
    assert "wrong: forward/floor/float64" in outcome.out
    assert "now       still wrong" in outcome.out
    assert "WRONG: 1 of 8 checks fail" in outcome.out


def test_without_quarantine_nothing_is_stored_and_a_wrong_kernel_is_an_error(
    polyhal: Command, devices: Registry, cache: Path
) -> None:
    outcome = polyhal("verify", "WrongResult", *ONLY, "--no-quarantine")
    assert outcome.code == 1
    out = " ".join(outcome.out.split())
    assert "wrong: forward/softmax/float32" in out
    assert "still in use: softmax of float32, native kernel; run polyhal verify without --no-quarantine" in out
    assert "WRONG" in out
    assert not any(word in out for word in ("fixed", "quarantined", "correct now"))
    found = json.loads(polyhal("verify", "WrongResult", *ONLY, "--no-quarantine", "--json").out)
    assert (found["correct"], found["quarantined"]) == (False, [])
    assert found["failed"] > 0
    assert not list(cache.rglob("*.json"))


def test_standard_output_contains_only_the_json(polyhal: Command, devices: Registry) -> None:
    outcome = polyhal("verify", "WrongResult", *ONLY, "--json")
    assert json.loads(outcome.out)["correct"] is True
    assert "verifying WrongResult" in outcome.err


def test_the_certificate_of_a_whole_run_is_stored_and_shown(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    every = runner.cases
    monkeypatch.setattr(runner, "cases", lambda *args, **keywords: itertools.islice(every(*args, **keywords), 50))
    nothing = polyhal("verify", "numpy:no_f64", "--show")
    assert nothing.code == 2
    assert "was not verified with this driver" in nothing.err
    ran = polyhal("verify", "numpy:no_f64", "--small")
    assert ran.code == 0, ran.out
    assert "scope small" in ran.out
    shown = polyhal("verify", "numpy:no_f64", "--show")
    assert shown.code == 0
    assert "correct: all" in shown.out
    assert shown.out.splitlines()[-1] in ran.out
    path = Path(ran.out.splitlines()[-1].partition("certificate: ")[2])
    path.write_text("{")
    broken = polyhal("verify", "numpy:no_f64", "--show")
    assert broken.code == 2
    assert "the certificate is ignored" in broken.err


def test_bad_input(polyhal: Command, tmp_path: Path) -> None:
    for arguments, problem in (
        (("numpy", "--only", "forwards/*"), "no check matches 'forwards/*'"),
        (("numpy", "--small", "--full"), "expected one of them"),
        (("nowhere",), "unknown backend 'nowhere'"),
        (("numpy", *ONLY, "--output", tmp_path), "directory"),
    ):
        outcome = polyhal("verify", *arguments)
        assert outcome.code == 2
        assert problem in outcome.err
    wrong = tmp_path / "expectations.toml"
    wrong.write_text('[ignored]\n"*" = "everything"\n')
    assert "has an unknown ignored" in polyhal("verify", "numpy", "--expectations", wrong).err
