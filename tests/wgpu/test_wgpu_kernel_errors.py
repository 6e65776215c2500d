"""Errors in WGSL kernels refer to the user's source, not to the compiled text."""

from __future__ import annotations

import pytest

import polyhal
from polyhal.backends.wgpu.as_written import as_written
from polyhal.backends.wgpu.user_kernel import add_offsets, entry_point
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.system.discovery.registry import registry

SOURCE = """// scales
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i < parameters.out_size) {
        BODY
    }
}"""
needs_wgpu = pytest.mark.skipif(not registry().probe("wgpu"), reason="there is no wgpu device")


def _error(source: str) -> str:
    kernel = polyhal.kernel("scaled", wgsl=source, numpy=lambda x: x * 2)
    with pytest.raises(KernelBuildError) as caught:
        kernel(polyhal.ones((4,), device="wgpu"))
    return str(caught.value)


@needs_wgpu
@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("out[i] = x[i] * nothing;", "nothing"),
        ("let k = x[i + x_offset]; out[i] = k;", "x_offset"),
        ("out[i] = x[i] *;", ";"),
        ("out[i] = x[i] + /* here */ nothing;", "nothing"),
    ],
)
def test_the_line_and_column_are_those_of_the_source(body: str, wrong: str) -> None:
    source = SOURCE.replace("BODY", body)
    text = _error(source)
    assert f"   6 |         {body}" in text
    assert "parameters.o_x" not in text
    assert "polyhal_" not in text
    log = text.partition("\nlog:\n")[2].split("\n")
    quoted = next(k for k, line in enumerate(log) if line.endswith(body))
    assert log[quoted + 1].index("^") == log[quoted].index(body) + body.index(wrong)
    assert f"scaled:6:{9 + body.index(wrong)}" in text


@needs_wgpu
def test_declarations_of_tensors_are_refused_with_the_fix() -> None:
    source = "@group(0) @binding(0) var<storage, read> x: array<f32>;\n" + SOURCE.replace("BODY", "out[i] = x[i];")
    text = _error(source)
    assert "the source declares @group(0); expected no bindings: tensors and parameters are declared by name" in text
    commented = "// @group(0) @binding(0) is x\n" + SOURCE.replace("BODY", "out[i] = x[i];")
    kernel = polyhal.kernel("copied", wgsl=commented, numpy=lambda x: x)
    assert kernel(polyhal.ones((2,), device="wgpu")).tolist() == [1, 1]


def test_columns_are_mapped_without_a_device() -> None:
    written = SOURCE.replace("BODY", "out[i] = x[i] * nothing;").split("\n")
    code = "\n".join(["", *written[1:]])
    rewritten = add_offsets(entry_point(code).text, ("x", "out")).split("\n")
    line = rewritten[5]
    column = line.index("nothing")
    log = f"error\n  ┌─ wgsl:6:{column + 1}\n  │\n6 │ {line}\n  │ {' ' * column}^^^^^^^ unknown\nin polyhal_main"
    expected = f"error\n  ┌─ k:6:25\n  │\n6 │ {written[5]}\n  │ {' ' * 24}^^^^^^^ unknown\nin main"
    assert as_written(log, "k", rewritten, written) == expected
    generated = f"  ┌─ wgsl:{len(written) + 3}:4"
    assert as_written(generated, "k", rewritten, written) == generated
