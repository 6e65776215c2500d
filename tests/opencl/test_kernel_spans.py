"""Programs of one kernel of a file."""

from __future__ import annotations

import re

import pytest

from polyhal.backends.common.codegen.kernel_spans import kernel_spans, only_kernel
from polyhal.backends.common.codegen.templating import SourceFolder

TEXT = """float f(float x) { return x; }
__kernel void a(__global float *x,
#if B
                int n /* { */
#else
                long n
#endif
) {
    if (n) { x[0] = f(1); } // }
}
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void b(__global float *x) { x[0] = 2; }
float g(float x) { return x; }
#if B
__kernel void c(__global float *x) { x[0] = 3; }
#else
__kernel void c(__global float *x) { x[0] = 4; }
#endif
"""


def test_lines_of_other_kernels_are_blank() -> None:
    text = only_kernel(TEXT, kernel_spans(TEXT), "c")
    assert text.count("\n") == TEXT.count("\n")
    assert [line for line in text.splitlines() if line] == [TEXT.splitlines()[0], *TEXT.splitlines()[11:]]


@pytest.mark.parametrize(
    "kernel",
    [
        "__kernel void d(int n) {\n#define M 1\n}\n",
        "__kernel void d(int n) {\n#if B\n}\n#else\nreturn; }\n#endif\n",
        "#if B\n__kernel void d(int n) {\n#else\n__kernel void d(long n) {\n#endif\n}\n",
        "#define D(name) __kernel void name(int n) {}\nD(d)\n",
    ],
)
def test_kernels_that_share_directives_with_other_code_stay(kernel: str) -> None:
    text = only_kernel(TEXT + kernel, kernel_spans(TEXT + kernel), "b")
    assert text.endswith(kernel)
    assert only_kernel(TEXT + kernel, kernel_spans(TEXT + kernel), "d") == TEXT + kernel


def test_a_program_of_a_shipped_file_has_one_kernel() -> None:
    shaders = SourceFolder("polyhal.shaders.opencl")
    several = {n: kernels for n in shaders.names() if len(kernels := kernel_spans(shaders.assemble(n, {}))) > 1}
    assert len(several) > 15
    for name, kernels in several.items():
        for kernel in kernels:
            text = shaders.assemble(name, {}, kernel)
            assert set(re.findall(r"^__kernel[^{;]*?void\s+(\w+)", text, re.MULTILINE)) == {kernel}
            assert text.startswith(shaders.before_kernels(name))
