"""Local memory that kernels declare, parsed from their programs, against manual counts and clang's."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from polyhal.backends.common.codegen.preprocessor import ActiveText
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl.described.local_memory import declared_local_memory
from polyhal.hal.device import Device
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.testing.tuning.kernel_check import lower_samples

CLANG = next((c for c in ("clang", *(f"clang-{n}" for n in range(14, 23))) if shutil.which(c)), None)
OPS_OF_FILES = ("matmul", "linear", "sum", "softmax", "attention", "attention_grad", "conv2d", "sort_pairs")

PROGRAM = """
#define REAL float
#define PITCH(n) ((n) + 1)
#define SCRATCH(T) typedef T Value; __local T scratch[8];
typedef REAL Alias;
typedef struct { uchar digit; float value; } Item;
inline void fill(__local const REAL *to) { __local REAL *p = (__local REAL *)to; }
__kernel void first(__global float *x, __local float *given) {
    __local REAL tile[4][PITCH(4)], other[2];  // 80 and 8 bytes
#if WIDE
    __local double never[100];
#else
    __local float3 triple __attribute__((aligned(32)));  // 16 bytes, at 96
#endif
    __local const REAL *p = tile[0];
    SCRATCH(ushort)  // 16 bytes, at 112
}
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void second(__global float *x) {
    __local Item items[3];  // a byte, three of padding, a float: 24 bytes
    __local Alias last[sizeof_is_unknown ? 1 : 5];  // 20 bytes
}
__kernel void third(__global float *x) {}
"""


def declared(text: str, kernel: str) -> int:
    """Return the local memory that a kernel of a program declares."""
    return declared_local_memory(ActiveText(lambda _: text).pieces("program", {}), kernel)


def test_arrays_are_counted() -> None:
    assert [declared(PROGRAM, k) for k in ("first", "second", "third")] == [128, 44, 0]
    with pytest.raises(ValueError, match="type Thing"):
        declared("__kernel void k() { __local Thing x[2]; }", "k")


@pytest.mark.skipif(CLANG is None, reason="needs clang, which counts local memory for any GPU it knows")
def test_clang_counts_the_same() -> None:
    backend = OpenCLDescribedBackend(description.load("rx6800"))
    device = Device.opened("described:rx6800", backend)
    for op in OPS_OF_FILES:
        lower_samples(device, OPS[op])
    seen = {launch.file: launch for launch in backend.kernels.launches if "__local" in launch.text}
    assert len(seen) >= 8
    for launch in seen.values():
        assert _as_clang_counts(launch.text, launch.kernel) == launch.local_memory, launch.file


def _as_clang_counts(text: str, kernel: str) -> int:
    """Return the kernel's local memory in clang's code for a GPU. Clang's promotion of private arrays is disabled."""
    assert CLANG is not None
    command = [
        CLANG,
        "-x",
        "cl",
        "-cl-std=CL1.2",
        "-w",
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx906",
        "-nogpulib",
        "-O1",
        "-Xclang",
        "-finclude-default-header",
        "-mllvm",
        "-disable-promote-alloca-to-lds",
        "-S",
        "-o",
        "-",
        "-",
    ]
    code = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=120).stdout
    figures = re.findall(r"\.group_segment_fixed_size: (\d+).*?\.symbol:\s+'?(\w+)\.kd", code, re.DOTALL)
    return next(int(size) for size, name in figures if name == kernel)
