"""Vendors' compilers' figures for kernels of usual sizes: python tests/opencl/occupancy_figures.py

Writes occupancy_figures.json next to this file, and the table of docs/kernels.md, which compares it with
occupancy_before.json: the worst figures of each kernel with tiles chosen as for NVIDIA's GPUs. AMD's clang and Intel's
ocloc must be installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polyhal
from polyhal.backends.opencl.described import description
from polyhal.backends.opencl.described.backend import OpenCLDescribedBackend
from polyhal.hal.device import Device
from polyhal.nn import functional as F

PATH = Path(__file__).with_suffix(".json")
BEFORE = PATH.with_name("occupancy_before.json")
PAGE = Path(__file__).parents[2] / "docs/kernels.md"
_BEGIN, _END = "<!-- python tests/opencl/occupancy_figures.py writes this table -->\n", "<!-- end of the table -->"
_COLUMNS = {
    "rx480": "RX 480: waves of 10",
    "rx6800": "RX 6800: waves of 16",
    "uhd630": "UHD 630: lanes",
    "a770": "Arc A770: lanes",
}
DEVICES = ("rx480", "rx6800", "uhd630", "a770")
"""One device of each architecture that the installed compilers support: GCN, RDNA, Gen9, Xe."""
FILES = (
    "gemm/tiles",
    "gemm/sliced_k",
    "conv/implicit_gemm",
    "conv/implicit_gemm_weight_grad",
    "attention/tiles",
    "attention/tiles_grad",
    "attention/sliced_tiles_grad",
    "attention/decode",
)
_SHAPE = (
    "DTYPE", "QUAD_ROWS", "QUAD_COLUMNS", "ROWS", "COLUMNS", "ROW_BLOCKS", "ITEM_WIDTH", "DEPTH", "TERMS", "ITEM_ROWS",
    "ITEM_COLUMNS", "FEATURES", "SLICE", "ROWS_ARE_KEYS", "FEATURE_LANES", "KEY_VECTORS",
)  # fmt: skip
"""Definitions that identify a tile. The worst figures of programs with equal values are kept."""
_MOST = ("group", "registers", "spilled_registers", "private_bytes", "local_bytes")
_LEAST = ("waves", "lanes")
_PRODUCTS = (
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (64, 4096, 1024),
    (4096, 64, 1024),
    (256, 256, 256),
    (2048, 512, 512),
)
_CONVOLUTIONS = (
    # images, channels, height and width, filters, kernel, stride
    (8, 64, 56, 64, 3, 1),
    (8, 128, 28, 128, 3, 1),
    (8, 256, 14, 256, 3, 2),
    (8, 3, 224, 32, 3, 2),
    (8, 16, 32, 16, 3, 1),
    (8, 64, 56, 128, 1, 1),
)


_HEADS = (32, 64, 128)
_LARGEST_HEAD = 256
"""Maximum features that decoding supports."""


def lowered(key: str) -> OpenCLDescribedBackend:
    """Return a described device after launches of products, convolutions, attention of usual sizes, and their gradients."""
    backend = OpenCLDescribedBackend(description.load(key))
    device = Device.opened(f"described:{key}", backend)
    for dtype in ("float32", "float16"):
        _decoding(device, dtype)
        for result in (*_products(device, dtype), *_convolutions(device, dtype), *_attention(device, dtype)):
            result.sum().backward()
    return backend


def _operand(device: Device, dtype: str, *shape: int) -> Any:
    return polyhal.zeros(shape, dtype=dtype, device=device, requires_grad=True)


def _products(device: Device, dtype: str) -> Iterator[Any]:
    for m, n, k in _PRODUCTS:
        yield _operand(device, dtype, m, k) @ _operand(device, dtype, k, n)
        yield F.linear(_operand(device, dtype, m, k), _operand(device, dtype, n, k), _operand(device, dtype, n))


def _convolutions(device: Device, dtype: str) -> Iterator[Any]:
    for images, channels, size, filters, kernel, stride in _CONVOLUTIONS:
        x = _operand(device, dtype, images, channels, size, size)
        weight, bias = _operand(device, dtype, filters, channels, kernel, kernel), _operand(device, dtype, filters)
        yield F.conv2d(x, weight, bias, stride=stride, padding=kernel // 2)


def _attention(device: Device, dtype: str) -> Iterator[Any]:
    for head in _HEADS:
        yield F.scaled_dot_product_attention(
            *(_operand(device, dtype, 2, 4, 512, head) for _ in range(3)), is_causal=True
        )


def _decoding(device: Device, dtype: str) -> None:
    """Run attention with one query and with four, as in text generation."""
    with polyhal.no_grad():
        for head in (*_HEADS, _LARGEST_HEAD):
            keys = _operand(device, dtype, 2, 4, 512, head)
            for queries in (1, 4):
                F.scaled_dot_product_attention(_operand(device, dtype, 2, 4, queries, head), keys, keys)


def figures(key: str) -> dict[str, dict[str, int]]:
    """Return the worst figures of each kernel and tile on a device."""
    backend = lowered(key)
    worst: dict[str, dict[str, int]] = {}
    for file in FILES:
        for found in backend.kernels.statistics(f"{file}.cl"):
            defined = found["definitions"]
            name = " ".join([file, *(f"{d}={defined[d]}" for d in _SHAPE if d in defined)])
            of_tile = worst.setdefault(name, {})
            for figure, pick in [*((f, max) for f in _MOST), *((f, min) for f in _LEAST)]:
                if figure in found:
                    of_tile[figure] = pick(of_tile.get(figure, found[figure]), found[figure])
    return dict(sorted(worst.items()))


def page() -> str:
    """Return docs/kernels.md with a table of the figures in the files."""
    before, now = (json.loads(path.read_text(encoding="utf-8")) for path in (BEFORE, PATH))
    lines = [f"| kernel | {' | '.join(_COLUMNS.values())} |", f"|---|{'---|' * len(_COLUMNS)}"]
    for file in FILES:
        # Sliced tiles replaced tiles of whole heads.
        old = file.replace("sliced_tiles", "tiles")
        cells = (f"{_worst(before[k], old)} → {_worst(now[k], file)}" for k in _COLUMNS)
        lines.append(f"| `{file}` | {' | '.join(cells)} |")
    start, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, rest = rest.partition(_END)
    return f"{start}{_BEGIN}\n{chr(10).join(lines)}\n\n{end}{rest}"


def _worst(kernels: dict[str, dict[str, int]], file: str) -> str:
    """Return the fewest waves or lanes over a kernel's tiles, and the most spills."""
    found = [figures for name, figures in kernels.items() if name.split()[0] == file]
    if not found:
        return "–"
    fewest = min(f.get("waves", f.get("lanes", 0)) for f in found)
    registers, memory = (max(f.get(n, 0) for f in found) for n in ("spilled_registers", "private_bytes"))
    notes = [f"{registers} registers spilled"] * bool(registers) + [f"{memory} bytes in memory"] * bool(memory)
    return f"{fewest} ({', '.join(notes)})" if notes else str(fewest)


if __name__ == "__main__":
    PATH.write_text(json.dumps({key: figures(key) for key in DEVICES}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
