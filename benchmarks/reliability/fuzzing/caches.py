"""Files in the cache folder: damage to them must never break the next start."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from benchmarks.reliability.fuzzing.case import FileFormat, HostileInput
from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.cli.views.certificate import print_certificate
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.compile.planning import quarantine
from polyhal.hal.core import fingerprint
from polyhal.hal.core.kernels import library, tuning
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.core.kernels.tuning import Family, TunedChoice, Tuning
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.settings import env
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError
from polyhal.hal.layout import Spec
from polyhal.hal.system.discovery import benchmark_cache
from polyhal.hal.system.discovery.benchmark_cache import BenchmarkCache
from polyhal.hal.testing.certification import certificate
from polyhal.hal.testing.certification.crash_journal import Journal
from polyhal.hal.testing.kit.scope import Scope

_INFO = DeviceInfo("opencl", "a device", DeviceType.GPU, 2**30, "driver 1", "id")
_NAME = "x"


def formats() -> list[FileFormat]:
    """Return all formats of this file."""
    return [
        _json("tuning database", _choices(), tuning.path(_INFO), _read_tuning),
        _json("verdicts", _verdicts(), library._path(_INFO), _read_verdicts),
        _json("benchmark cache", _result(), _result_path(), _read_result),
        _json("quarantine", _quarantine(), quarantine._path(Device("numpy")), _read_quarantine),
        _json("certificate", _certificate(), certificate.certificate_path(Device("numpy")), _read_certificate),
        _lines("kernel-call log", _calls(), KernelCallLog(_INFO)._path, _read_calls),
        _lines("crash journal", b"key\n1\ncase\n", Journal(Device("numpy"))._path, _read_journal),
        FileFormat("program cache", _damaged_program, _read_program, _program()),
    ]


def _place(path: Path) -> str:
    return path.relative_to(env.cache_dir()).as_posix()


def _json(name: str, tree: Any, path: Path, read: Callable[[], Any]) -> FileFormat:
    place = _place(path)

    def make(random: Random) -> HostileInput:
        return HostileInput({place: damaged_json(random, tree)})

    return FileFormat(name, make, lambda folder: read(), HostileInput({place: json.dumps(tree).encode()}))


def _lines(name: str, data: bytes, path: Path, read: Callable[[], Any]) -> FileFormat:
    """Return a file of lines, each JSON or plain text."""
    place = _place(path)

    def make(random: Random) -> HostileInput:
        lines = data.splitlines()
        at = random.randrange(len(lines))
        try:
            lines[at] = damaged_json(random, json.loads(lines[at]))
        except ValueError:
            lines[at] = random.choice((b"", b"9" * 30, b"-1", b"x", b"\xff", "²".encode(), b"1\n2", b"9" * 5000))
        out = b"\n".join(lines) + b"\n"
        return HostileInput({place: damaged_bytes(random, out) if random.random() < 0.5 else out})

    return FileFormat(name, make, lambda folder: read(), HostileInput({place: data}))


# --- tuning ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tile:
    rows: int = 4
    columns: int = 4


_FAMILY = Family(
    "gemm/tile", {"rows": (2, 4, 8), "columns": (4, 8)}, lambda features, c: 64 % (c.rows * c.columns) == 0
)


def _choices() -> Any:
    choices = [TunedChoice("gemm/tile", s, {"rows": 8}, 1.5, "2026-01-01") for s in ("64x64", "256x64")]
    return {"schema": 1, "device": fingerprint.model(_INFO), "choices": [asdict(c) for c in choices]}


def _read_tuning() -> Any:
    choices = tuning.load(_INFO)
    table = Tuning(None, {}, {key: c.values for key, c in choices.items()})
    chosen = [table.choose(_FAMILY, shape, _Tile()) for shape in ("64x64", "256x64", "1x1")]
    shown = [f"{c.family} {c.shape_class} {c.speedup:.2f} {c.date}" for c in (choices[key] for key in sorted(choices))]
    if not all(c.rows in (2, 4, 8) and c.columns in (4, 8) for c in chosen):
        raise AssertionError(f"a choice that no search tries: {chosen}")
    return chosen, shown


def _verdicts() -> Any:
    verdict = library.Verdict(library.digest("text"), "", 1.5, "2026-01-01")
    return {"schema": 1, "device": fingerprint.model(_INFO), "verdicts": {"gemm/tile.cl": asdict(verdict)}}


def _read_verdicts() -> Any:
    overrides = library.KernelOverrides(_INFO)
    problem = overrides.problem("gemm/tile.cl", "text")
    return f"{problem[:9]}", [f"{v.ratio:.2f} {v.date[:9]}" for v in overrides.verdicts().values()]


# --- benchmark ------------------------------------------------------------------------------------------------------


class _Backend:
    name = "opencl"
    priority = 0


def _candidate() -> Candidate:
    return Candidate(_Backend(), _INFO)  # type: ignore[arg-type]


def _result_path() -> Path:
    return benchmark_cache._folders()[0] / benchmark_cache._digest(BenchmarkCache().key(_candidate()))


def _result() -> Any:
    speed = asdict(benchmark_cache.BenchmarkResult(0.5, 1.0, 64, "2026-01-01T00:00:00+00:00"))
    return {"schema": 1, "key": BenchmarkCache().key(_candidate()), "speed": speed}


def _read_result() -> Any:
    cache = BenchmarkCache()
    result, ratio = cache.lookup(_candidate()), cache.ratio(_candidate())
    return f"{ratio:.1f} {result.day} {result.problem[:9]}" if result else ""


# --- quarantine and certificate -------------------------------------------------------------------------------------


def _entry() -> Any:
    step, layout = quarantine.ResolutionStep.NATIVE, quarantine.LayoutClass
    return quarantine.QuarantineEntry(step, "add", "float32", tuple(layout), "wrong", "case", "2026-01-01").to_json()


def _quarantine() -> Any:
    identity = fingerprint.fingerprint(Device("numpy")).to_json()
    return {"schema": 1, "identity": identity, "entries": [_entry()]}


def _read_quarantine() -> Any:
    listed = quarantine.load(Device("numpy"))
    listed.find(quarantine.ResolutionStep.NATIVE, "add", "float32", next(iter(quarantine.LayoutClass)))
    return listed.lines() if not listed.ignored else ""


def _certificate() -> Any:
    device = Device("numpy")
    known = certificate.describe(device, Scope(), "*")
    result = {"add": {"float32": certificate.OpResult({quarantine.ResolutionStep.NATIVE: 3}, 0.5, 3, 0)}}
    finding = certificate.Finding("case", "add", "float32", "add(x)", "wrong", "0", "1", "2", "native", "skipped", True)
    entries = (quarantine.QuarantineEntry.from_json(_entry()),)
    made = certificate.Certificate(
        **known,
        seconds=1.0,
        passed=3,
        unsupported=0,
        expected_failures=0,
        complete=True,
        results=result,
        findings=(finding,),
        quarantined=entries,
    )
    return json.loads(json.dumps(made.to_json()))


def _read_certificate() -> Any:
    stored, why = certificate.stored(Device("numpy"))
    if stored is None:
        return bool(why)
    out = io.StringIO()
    print_certificate(Console(file=out, width=200), stored, verbose=True)
    return out.getvalue()


# --- logs -----------------------------------------------------------------------------------------------------------


def _calls() -> bytes:
    spec = Spec(dtypes.float32, (2, 3), (3, 1))
    calls = [KernelCall("add", (spec, None), (spec,), {"axis": (1,), "dtype": dtypes.float32}) for _ in range(3)]
    lines = [json.dumps({**c.to_json(), "programs": [f"digest {i}"]}) for i, c in enumerate(calls)]
    return ("\n".join(lines) + "\n").encode()


def _read_calls() -> Any:
    log = KernelCallLog(_INFO)
    calls = log.calls()
    log.add(KernelCall("add", (), (), {}), ["digest 0"])
    return [c.op for c in calls]


def _read_journal() -> Any:
    return Journal(Device("numpy")).crashed()


# --- programs -------------------------------------------------------------------------------------------------------

_KEY = DiskCache.key(["a program"])


def _program() -> HostileInput:
    payload = bytes(range(256))
    return HostileInput({f"programs/{_KEY}.bin": b"PHC1" + hashlib.sha256(payload).digest() + payload}, exact=True)


def _damaged_program(random: Random) -> HostileInput:
    ((name, data),) = _program().files.items()
    return HostileInput({name: damaged_bytes(random, data, [data])}, exact=True)


def _read_program(folder: Path) -> bytes:
    payload = DiskCache(folder / "programs").load(_KEY)
    if payload is None:
        raise CorruptFileError("it is compiled anew")
    return payload
