"""Numbers that C passes to kernels: integers wrap as docs/exporting.md says, as `int(x)` of Python modulo a power of two."""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tests.export.c_builds import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs gcc or clang")
_PROGRAM = r"""
#include <inttypes.h>
#include <stdio.h>
#include "polyhal_numbers.c"

int polyhal_fail(polyhal_step *step, int code, const char *format, ...) { (void)step; (void)format; return code; }
int polyhal_fail_opencl(polyhal_step *step, cl_int status, const char *what, const char *name) {
    (void)step; (void)what; (void)name; return (int)status;
}

int main(void) {
    double x;
    while (scanf("%lf", &x) == 1) {
        const polyhal_kind kinds[] = {POLYHAL_INT, POLYHAL_UINT, POLYHAL_LONG, POLYHAL_ULONG};
        int k;
        for (k = 0; k < 4; k++) {
            kernel_number value = {0};
            size_t size = convert(kinds[k], real(x), &value);
            (void)printf("%zu:%" PRIu64 " ", size, size == 4 ? value.u32 : value.u64);
            if (!(fabs(x) < 9e18)) continue;
            if (convert(kinds[k], integer((int64_t)x), &value) != size) return 1;
            (void)printf("%zu:%" PRIu64 " ", size, size == 4 ? value.u32 : value.u64);
        }
    }
    return 0;
}
"""


def test_integers_of_arguments_wrap(tmp_path: Path) -> None:
    numbers = [
        0.0,
        -1.0,
        3.9,
        -3.9,
        2.0**31,
        -(2.0**31) - 1,
        2.0**32 + 5,
        -(2.0**40) + 3,
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e30,
    ]
    expected = []
    for x in numbers:
        for bits in (32, 32, 64, 64):
            expected += [f"{bits // 8}:{int(x) % (1 << bits)}"] * (1 if abs(x) >= 9e18 else 2)
    source = tmp_path / "numbers.c"
    source.write_text(_PROGRAM)
    runtime = files("polyhal.export") / "c_runtime"
    words = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-fsanitize=undefined",
        "-fno-sanitize-recover=all",
    ]
    program = tmp_path / "numbers"
    subprocess.run(
        [str(COMPILER), *words, f"-I{runtime}", str(source), "-o", str(program), "-lm"], check=True, timeout=60
    )
    text = " ".join(map(repr, [*numbers, float("inf"), float("nan")]))
    done = subprocess.run([str(program)], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*expected, *["0:0"] * 4, *["0:0"] * 4]
