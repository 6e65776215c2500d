"""Vendors' compilers' figures for products on matrix units: python tests/opencl/matrix_unit_figures.py

Writes matrix_unit_figures.json next to this file. AMD's clang and Intel's ocloc must be installed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polyhal
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.backends.opencl.described.description import OfflineCompiler
from polyhal.hal.device import Device
from polyhal.nn import functional as F

PATH = Path(__file__).with_suffix(".json")
DEVICES = ("vega20", "rx6800", "rx7900", "rx9070", "mi250", "a770", "lunarlake")
_STAND_INS = {"lunarlake": OfflineCompiler("ocloc", ("-device", "pvc", "-internal_options", "-cl-intel-allow-zebin"))}
"""Substitutes for devices that Debian 12's compilers do not support: devices with matrix engines of equal shape."""
_PRODUCTS = ((4096, 4096, 4096), (512, 256, 128), (64, 128, 8192), (1000, 777, 333))
_SHAPE = ("DTYPE", "UNIT", "LANES", "TILE_ROWS", "TILE_COLUMNS", "SPLIT_K")
_MOST = ("group", "registers", "spilled_registers", "private_bytes", "local_bytes")
_LEAST = ("waves", "lanes", "matrix_instructions")


def figures(key: str) -> dict[str, dict[str, int]]:
    """Return the worst figures of each tile of each unit of a device, over the layouts of operands."""
    found = description.load(key)
    worst: dict[str, dict[str, int]] = {}
    for unit in OpenCLDescribedBackend(found, units=True).features.matrix_units:
        backend = OpenCLDescribedBackend(replace(found, compiler=_STAND_INS.get(key, found.compiler)), units=True)
        backend.runtime.features = replace(backend.features, matrix_units=(unit,))
        device = Device.opened(f"described:{key}", backend)
        for dtype in unit.dtypes:
            for m, n, k in _PRODUCTS:
                x, w = (polyhal.zeros(s, dtype=dtype, device=device, requires_grad=True) for s in ((m, k), (n, k)))
                F.linear(x, w, polyhal.zeros(n, dtype=dtype, device=device)).sum().backward()
        for row in backend.kernels.statistics("gemm/matrix_unit.cl"):
            defined = row["definitions"]
            name = " ".join(f"{d}={defined[d]}" for d in _SHAPE)
            of_tile = worst.setdefault(name, {})
            for figure, pick in [*((f, max) for f in _MOST), *((f, min) for f in _LEAST)]:
                if figure in row or figure == "matrix_instructions":
                    value = row.get(figure, 0)
                    of_tile[figure] = pick(of_tile.get(figure, value), value)
    return dict(sorted(worst.items()))


if __name__ == "__main__":
    PATH.write_text(json.dumps({key: figures(key) for key in DEVICES}, indent=1) + "\n", encoding="utf-8")
