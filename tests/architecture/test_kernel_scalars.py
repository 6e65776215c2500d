"""Kernels take few scalars: many numbers travel in a struct, whose members the host fills by name."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.kernel_scalars import kernel_scalars

_MAX_SCALARS = 20
_SHADERS = Path(__file__).parents[2] / "shaders" / "opencl"


def test_no_kernel_takes_more_than_20_scalars() -> None:
    counts = kernel_scalars(_SHADERS)
    assert len({name.split()[0] for name in counts}) == len(list(_SHADERS.rglob("*.cl"))), "files that cannot be read"
    assert {name: n for name, n in counts.items() if n > _MAX_SCALARS} == {}


def test_scalars_of_every_variant_are_counted(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text("#define SIZES const uint rows, const uint columns\n")
    (tmp_path / "scale.cl").write_text("""
#ifndef SHIFTED
#define SHIFTED 0
#endif
#include "sizes.h"
typedef struct {
    long strides[4];
} Geometry;
__kernel void scale(__global float *x, const ulong x_offset, SIZES,
#if SHIFTED
                    const float shift,
#endif
                    const Geometry geometry) {}
""")
    assert kernel_scalars(tmp_path) == {"scale.cl scale": 4}
