"""Translations of shaders: errors of missing or rejecting tools, cached results, and figures of the real tools.

The tools here are scripts. translation_figures.json holds results of the real tools; `make vendors` recomputes and compares
them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import translation_figures

from polyhal.backends.wgpu.described import description
from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.backends.wgpu.described.translations import TRANSLATOR, translate_all
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, KernelBuildError
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.testing.tuning.kernel_check import lower_samples

FILE = "rowwise/softmax.wgsl"
WRITES = """
import pathlib
for nbytes, extension in enumerate(("spv", "hlsl", "metal"), 1):
    pathlib.Path(f"shader.{extension}").write_bytes(bytes(nbytes))
"""
READS = "assert '@compute' in sys.stdin.read()\n"
FIGURES: dict[str, dict[str, int]] = json.loads(translation_figures.PATH.read_text(encoding="utf-8"))
NOT_TRANSLATED = {
    *(f"attention/{name}.wgsl" for name in ("cached", "cached_reduce", "rotary_attention", "rotary_store")),
    "fft/half_spectrum.wgsl",
    "fft/local_stages.wgsl",
    "gather/replace_rows.wgsl",
    *(f"linear_algebra/{name}.wgsl" for name in ("cholesky", "lu", "qr", "row_order", "solve", "triangular_solve")),
    "optim/means_along.wgsl",
    "pointwise/foreach.wgsl",
    "pointwise/rotary.wgsl",
    "pointwise/sums_of_tensors.wgsl",
    "reduction/scan.wgsl",
    *(f"quantized/{name}.wgsl" for name in ("dequantize", "few_rows")),
    *(f"rowwise/{name}.wgsl" for name in ("mean_cross_entropy", "mean_loss", "sample_tokens")),
}
"""Shaders that are newer than the figures, which need naga to be updated."""
ALL = bool(os.environ.get("POLYHAL_TEST_ALL"))
_OTHER_VERSION = 0.25
"""Relative tolerance of sizes, because versions of naga write different text. A rejected shader is always an error."""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Create the only folder on the search path, with a translator and checkers that accept every shader."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    script(folder / TRANSLATOR, READS + WRITES)
    for name in ("spirv-val", "dxc"):
        script(folder / name, "")
    return folder


def script(path: Path, code: str) -> None:
    """Write a program that records its arguments and runs `code`."""
    note = f"open({str(path)!r} + '.log', 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    path.write_text(f"#!{sys.executable}\nimport sys\n{note}\n{code}")
    path.chmod(0o755)


def softmax(key: str) -> WGPUDescribedBackend:
    """Return a described adapter that has lowered softmax."""
    backend = WGPUDescribedBackend(description.load(key))
    lower_samples(Device.opened(f"described:{key}", backend), OPS["softmax"])
    return backend


@pytest.mark.parametrize(
    ("key", "figures", "checked"),
    [
        ("rx6800-vulkan", {"spirv_bytes": 1}, {"spirv-val": "--target-env vulkan1.1 shader.spv"}),
        ("uhd630-d3d12", {"hlsl_bytes": 2}, {"dxc": "-T cs_6_2 -E main -HV 2018 -enable-16bit-types shader.hlsl"}),
        ("m1-metal", {"msl_bytes": 3}, {}),
        ("webgpu", {"spirv_bytes": 1, "hlsl_bytes": 2, "msl_bytes": 3}, {"spirv-val": "", "dxc": ""}),
    ],
)
def test_figures_belong_to_the_adapters_api_and_are_cached(
    tools: Path, key: str, figures: dict[str, int], checked: dict[str, str]
) -> None:
    backend = softmax(key)
    rows = backend.kernels.statistics(FILE)
    assert len(rows) == len([s for s in backend.kernels.shaders if s.file == FILE]) > 1
    assert all(figures.items() <= row.items() and row["kernel"] == "rowwise_softmax" for row in rows)
    assert all({"spirv_bytes", "hlsl_bytes", "msl_bytes"} & set(row) == set(figures) for row in rows)
    logs = {name: Path(f"{tools / name}.log") for name in (TRANSLATOR, "spirv-val", "dxc")}
    assert {name for name in ("spirv-val", "dxc") if logs[name].exists()} == set(checked)
    for name, options in checked.items():
        assert options in logs[name].read_text()
    runs = logs[TRANSLATOR].read_text()
    assert backend.kernels.statistics(FILE) == rows
    assert logs[TRANSLATOR].read_text() == runs, "figures are cached"
    assert backend.kernels.statistics("gemm/tiles.wgsl") == []


@pytest.mark.parametrize(
    ("key", "tool", "fix"),
    [
        ("m1-metal", TRANSLATOR, "`cargo install --path .*translator`"),
        ("rx6800-vulkan", "spirv-val", "apt install spirv-tools"),
        ("uhd630-d3d12", "dxc", "DirectX Shader Compiler"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(tools: Path, key: str, tool: str, fix: str) -> None:
    (tools / tool).unlink()
    with pytest.raises(BackendError, match=f"{tool} is not installed; install .*{fix}"):
        softmax(key).kernels.statistics(FILE)


@pytest.mark.parametrize(
    ("key", "tool", "code", "who", "said"),
    [
        ("m1-metal", TRANSLATOR, "sys.exit('wgsl: unknown type')", "naga", "unknown type"),
        (
            "m1-metal",
            TRANSLATOR,
            f"print('msl: no such atomic', file=sys.stderr)\n{WRITES}",
            "writer of msl",
            "no such atomic",
        ),
        ("rx6800-vulkan", "spirv-val", "sys.exit('error: line 7')", "spirv-val", "line 7"),
        ("uhd630-d3d12", "dxc", "sys.exit('error: validation errors')", "dxc", "validation errors"),
    ],
)
def test_a_rejection_shows_the_output_of_the_tool(
    tools: Path, key: str, tool: str, code: str, who: str, said: str
) -> None:
    script(tools / tool, code)
    with pytest.raises(KernelBuildError, match=f"{who} refuses the kernel") as caught:
        softmax(key).kernels.statistics(FILE)
    assert said in str(caught.value)


def test_limits_of_other_languages_are_ignored(tools: Path) -> None:
    script(tools / TRANSLATOR, f"print('hlsl: no such atomic', file=sys.stderr)\n{WRITES}")
    assert softmax("rx6800-vulkan").kernels.statistics(FILE)


def test_groups_beyond_the_memory_of_directx_are_not_compiled_for_it(tools: Path) -> None:
    text = "var<workgroup> x: array<f32, {}>;\n@compute @workgroup_size(8) fn main() {{}}"
    small, large = (NotedShader("a.wgsl", "a", (), text.format(n), 0, 0) for n in (8192, 8193))
    sizes: dict[NotedShader, Any] = translate_all([small, large], "", "any")
    assert set(sizes[small]) == {"spirv_bytes", "hlsl_bytes", "msl_bytes"}
    assert set(sizes[large]) == {"spirv_bytes", "msl_bytes"}


def test_every_shader_for_graphics_cards_was_translated() -> None:
    files = softmax("webgpu").kernels
    included = {part for name in files.names() for part in files.parts(name) - {name}}
    kernels = set(files.names()) - included
    for_processors = {name for name in kernels if name.rpartition("/")[2].startswith("cpu")}
    assert set(FIGURES) | NOT_TRANSLATED == kernels - for_processors - {"lib/patch.wgsl"}
    assert not set(FIGURES) & NOT_TRANSLATED
    for row in FIGURES.values():
        assert row["shaders"] >= row["for_d3d12"] > 0
        assert min(row["spirv_bytes"], row["hlsl_bytes"], row["msl_bytes"]) > 1000


@pytest.mark.skipif(not ALL, reason="minutes: make vendors")
def test_naga_and_the_tools_behind_it_accept_every_shader() -> None:
    found = translation_figures.figures()
    assert found.keys() == FIGURES.keys(), "see tests/wgpu/translation_figures.py"
    for name, figures in found.items():
        for what, number in figures.items():
            allowed = _OTHER_VERSION * FIGURES[name][what] if what.endswith("_bytes") else 0
            assert abs(number - FIGURES[name][what]) <= allowed, (name, what)
