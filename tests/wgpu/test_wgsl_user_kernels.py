"""User kernels in WGSL: the rewriting of their text, and grids beyond one axis of a dispatch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import polyhal
from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import open_adapter
from polyhal.backends.wgpu.user_kernel import add_offsets, entry_point
from polyhal.hal.device import Device


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x[i]", "x[parameters.o_x + u32(i)]"),
        ("x[y[i + 1] & 3]", "x[parameters.o_x + u32(y[parameters.o_y + u32(i + 1)] & 3)]"),
        ("out[v[0]] = p.x[1] + xx[2]", "out[v[0]] = p.x[1] + xx[2]"),
        ("y [ (a)[0] ]", "y[parameters.o_y + u32( (a)[0] )]"),
    ],
)
def test_indices_count_from_the_offset(text: str, expected: str) -> None:
    assert add_offsets(text, ("x", "y")) == expected


def test_the_entry_point_becomes_a_function_on_the_same_lines() -> None:
    code = "const n = 1;\n@compute @workgroup_size(8u, 4)\nfn main(\n  @builtin(workgroup_id) w: vec3<u32>,\n) {\n}"
    text, size, generated = entry_point(code)
    assert text == "const n = 1;\nfn polyhal_main(w: vec3<u32>\n\n\n) {\n}"
    assert text.count("\n") == code.count("\n")
    assert size == (8, 4)
    assert "polyhal_main(polyhal_group);" in generated


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fn main() {}", "no entry point"),
        ("@compute @workgroup_size(N) fn main() {}", "not a list of literal numbers"),
        ("@compute @workgroup_size(64) fn main(all: Inputs) {}", "must be like"),
        ("@compute @workgroup_size(64) fn main(", "never closed"),
    ],
)
def test_an_unreadable_entry_point_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        entry_point(text)


def test_grids_are_spread_over_the_axes_of_a_dispatch(found: discovery.WGPUAdapter) -> None:
    backend = open_adapter(found)
    backend.runtime.features = dataclasses.replace(backend.runtime.features, max_groups=7)
    device = Device.opened("wgpu:spread", backend)
    ids = polyhal.kernel(
        "ids",
        wgsl="""
        @compute @workgroup_size(4, 2, 1)
        fn main(
            @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32
        ) {
            let size = vec3<u32>(parameters.x_dim2, parameters.x_dim1, parameters.x_dim0);
            if (any(id >= size)) { return; }
            let place = (id.z * size.y + id.y) * size.x + id.x;
            out[place] += x[place] + i32(local + 8u * group.x + 100u * groups.x);
        }""",
        outputs=lambda x: (x.dtype, x.shape),
        grid=lambda x: x.shape[::-1],
        initial=1,
    )
    x = np.arange(3 * 5 * 10, dtype=np.int32).reshape(3, 5, 10)
    _, rows, columns = np.indices(x.shape)
    local = rows % 2 * 4 + columns % 4
    result = ids(polyhal.tensor(x, device=device))
    np.testing.assert_array_equal(result.numpy(), 1 + x + local + 8 * (columns // 4) + 100 * 3)
