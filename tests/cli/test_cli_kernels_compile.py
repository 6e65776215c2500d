"""`polyhal kernels compile`: tables of an offline compiler's statistics, from a stub in place of the compiler, and errors."""

from __future__ import annotations

import json
import re

import pytest

from polyhal.backends.opencl.described.noted_programs import NotedPrograms
from polyhal.backends.wgpu.described import noted_shaders

from .conftest import Command


def test_kernels_compile_for_a_described_device(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def statistics(self: NotedPrograms, name: str) -> list[dict[str, object]]:
        figures = [{"registers": 10, "waves": 8}, {"registers": 30, "waves": 4}]
        rows = [launch for launch in self.launches if launch.file == name]
        return [
            {"kernel": r.kernel, "definitions": dict(r.definitions), **f} for r, f in zip(rows, figures, strict=False)
        ]

    monkeypatch.setattr(NotedPrograms, "statistics", statistics)
    worst = polyhal("kernels", "compile", "--for", "rx6800", "--workloads", "mlp").out
    assert re.search(r"^kernel +variants +registers +waves", worst, re.MULTILINE)
    assert re.search(r"^pointwise_elementwise +2 +30 +4", worst, re.MULTILINE)
    variants = polyhal("kernels", "compile", "softmax", "--for", "described:rx6800").out
    assert len(re.findall(r"^rowwise_softmax +(?:10 +8|30 +4) ", variants, re.MULTILINE)) == 2
    found = json.loads(polyhal("kernels", "compile", "softmax", "--for", "rx6800", "--json").out)
    assert [row["registers"] for row in found["kernels"]] == [10, 30]


def test_kernels_compile_reports_wrong_arguments(polyhal: Command) -> None:
    assert "expected one of a770, adreno730" in polyhal("kernels", "compile", "--for", "voodoo").err
    wrong = polyhal("kernels", "compile", "--for", "m1", "--workloads", "poker")
    assert wrong.code == 2
    assert "unknown workload 'poker'; expected any of basics" in wrong.err
    assert "no compiler makes code for this device" in polyhal("kernels", "compile", "softmax", "--for", "m1").err


def test_kernels_compile_for_an_adapter_of_wgpu(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert (
        "polyhal-shader-translator is not installed"
        in polyhal("kernels", "compile", "softmax", "--for", "m1-metal").err
    )
    monkeypatch.setattr(noted_shaders, "translate_all", lambda shaders, *_: {s: {"msl_bytes": 1234} for s in shaders})
    found = polyhal("kernels", "compile", "rowwise/softmax", "--for", "m1-metal").out
    assert re.search(r"^rowwise_softmax +128 +\d+ +1234 ", found, re.MULTILINE)
