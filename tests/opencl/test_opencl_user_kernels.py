"""Users' kernels in OpenCL C: offsets are added to their text without changing line numbers."""

from __future__ import annotations

import pytest

from polyhal.backends.opencl_c.user_kernel import patch_offsets


def test_offsets_follow_pointers_to_global_memory() -> None:
    source = """float f(float x) { return x; }
// a kernel void scale(is here)
__kernel void scale_all(__global float *x) {}
__kernel void scale(
    __global const float4 *restrict x, // the input, read once
    __local float *buffer, float a,
    global unsigned int* out) {
    out[0] = a * x[0].x;
}"""
    text, pointers = patch_offsets("scale", source)
    assert text.count("\n") == source.count("\n")
    lines = text.split("\n")
    assert lines[2] == "__kernel void scale_all(__global float *x) {}"
    assert lines[4] == "    __global const float4 *restrict x, ulong x_offset, // the input, read once"
    assert lines[5] == "    __local float *buffer, float a,"
    assert lines[6] == "    global unsigned int* out, ulong out_offset) { x += x_offset; out += out_offset;"
    assert pointers == {"x": "float4", "out": "unsigned int"}


def test_a_source_without_the_kernel() -> None:
    with pytest.raises(ValueError, match="no kernel `__kernel void scale"):
        patch_offsets("scale", "void scale(float x) {}")
