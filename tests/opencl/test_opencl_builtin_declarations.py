"""Declarations of built-in functions for compilers that would parse all of them for each program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from polyhal.backends.opencl import builtin_declarations
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.backends.opencl.builtin_declarations import SKIP_HEADER, declarations
from polyhal.backends.opencl_c import language
from polyhal.hal.core.kernels.call_log import typical_calls

ALL = "".join(builtin_declarations._functions(True).values())
OVERLOADS = {
    "(double)isnan((double)x[0])": 0.0,
    "(double)fmax((double)x[1], 0.0)": 2.0**40 + 2.0**-10,
    "(double)abs((long)x[1] * 1024)": 2.0**50,
    "(double)max((long)x[1], (long)3)": 2.0**40,
    "(double)select(1.0, 2.0, (long)-1)": 2.0,
    "(double)convert_char_sat((double)x[1])": 127.0,
    "(double)mul_hi((ulong)1 << 63, (ulong)6)": 3.0,
    "(double)clz((short)1)": 15.0,
    "(double)vload4(0, x).s1": 2.0**40 + 2.0**-10,
}
"""Expressions of doubles `x`, whose results would differ if the function were declared for other types only."""


def built(found: Any, text: str, *options: str) -> cl.Program:
    """Build a program of OpenCL C 1.2. Raises pyopencl.RuntimeError."""
    return cl.Program(OpenCLBackend(found).runtime.context, text).build(
        [*language.flags(()), *options], cache_dir=False
    )


def test_declarations_agree_with_the_compilers_header(pocl: Any) -> None:
    """Declarations of one function that differ in the type of the result are an error, and other differences are overloads."""
    kernel = "__kernel void f(__global int *x) { x[0] = 1; }\n"
    built(pocl, declarations("", fp64=True) + ALL + kernel)
    with pytest.raises(cl.RuntimeError, match=r"conflicting types|differ only in their return type"):
        built(pocl, "int __attribute__((overloadable)) exp(float);\n" + kernel)


def test_overloads_of_all_types_are_declared(pocl: Any) -> None:
    context = OpenCLBackend(pocl).runtime.context
    queue = cl.CommandQueue(context)
    stores = "".join(f"out[{i}] = {expression};\n" for i, expression in enumerate(OVERLOADS))
    text = f"__kernel void f(__global double *x, __global double *out) {{\n{stores}}}\n"
    program = cl.Program(context, declarations(text, fp64=True) + text)
    kernel = cl.Kernel(program.build([*language.flags(()), SKIP_HEADER], cache_dir=False), "f")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    results = np.zeros(len(OVERLOADS))
    x = cl.Buffer(context, flags, hostbuf=np.array([1.0, 2.0**40 + 2.0**-10, 3.0, 4.0]))
    out = cl.Buffer(context, flags, hostbuf=results)
    kernel.set_args(x, out)
    cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
    cl.enqueue_copy(queue, results, out)
    assert dict(zip(OVERLOADS, results, strict=True)) == OVERLOADS


def test_only_functions_that_a_program_calls_are_declared() -> None:
    text = (
        "#define WIDTH 8\n#define ROWS 2\n#define LOAD(p) CONCAT(vload, WIDTH)(0, p)\nREDUCE(fmin, x); y = exp(x); "
        "vstore4(y, 0, p); CONCAT(vload, ROWS)(0, p)\n#ifndef WIDTH\n#define WIDTH 16\n#endif\n"
    )
    lines = declarations(text, fp64=False).splitlines()
    names = {line.split("(")[-2].split()[-1] for line in lines if "overloadable" in line}
    assert names == {"vload2", "vload8", "fmin", "exp", "vstore2", "vstore4", "vstore8"}
    assert not [line for line in lines if "double" in line]


def test_a_program_with_another_function_is_built_with_the_header(pocl: Any, caplog: pytest.LogCaptureFixture) -> None:
    programs = OpenCLBackend(pocl).runtime.programs
    caplog.set_level("INFO", "polyhal.kernels")
    programs.build("called.cl", "__kernel void f(__global float *x) { x[0] = length((float2)(x[1], x[2])); }\n")
    assert "called.cl needs the compiler's header" in caplog.text


def test_kernel_files_are_built_without_the_header(
    pocl: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_BUILD_AHEAD", "0")
    backend = OpenCLBackend(pocl)
    caplog.set_level("INFO", "polyhal.kernels")
    calls = {call.op: call for calls in typical_calls() for call in calls}
    for op in ("add", "gelu", "layer_norm", "matmul", "attention"):
        backend.lower(op, calls[op].inputs, calls[op].outputs, calls[op].params)
    assert len(backend.kernels.program_builds) >= 5
    assert "needs the compiler's header" not in caplog.text
