"""Diagrams of the documentation, as SVG files in docs/pictures: `make generate` writes them.

The picture of the architecture is drawn from the layers that tests/architecture/layers.py declares and a test enforces.
`tools/screenshot.py` makes the pictures of pages that the programs write.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from tests.architecture.layers import HAL

_STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}"
    ".small{font-size:11px;fill:#57606a}.title{font-weight:bold}"
    ".box{fill:#f6f8fa;stroke:#8c959f}.blue{fill:#ddf4ff;stroke:#54aeff}.green{fill:#dafbe1;stroke:#4ac26b}"
    ".orange{fill:#fff1e5;stroke:#fb8f44}.purple{fill:#fbefff;stroke:#c297ff}"
    ".line{stroke:#57606a;fill:none;marker-end:url(#arrow)}.grid{stroke:#8c959f;stroke-width:.5;fill:none}"
)
_MARKER = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#57606a"/></marker>'
)


def pictures() -> dict[str, str]:
    """Return the text of each diagram by its path."""
    drawn = {
        "architecture": _architecture(),
        "gemm-tiles": _gemm_tiles(),
        "flash-attention": _flash_attention(),
        "scan-lookback": _scan_lookback(),
    }
    return {f"docs/pictures/{name}.svg": text for name, text in drawn.items()}


def _svg(title: str, width: int, height: int, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n<defs>{_MARKER}</defs>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _box(x: float, y: float, width: float, height: float, kind: str, title: str = "", *lines: str) -> str:
    parts = [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>']
    rows = [row for row in (title, *lines) if row]
    top = y + height / 2 - 8 * (len(rows) - 1) + 4
    for i, row in enumerate(rows):
        style = "title" if i == 0 else "small"
        parts.append(_text(x + width / 2, top + 16 * i, row, style, "middle"))
    return "\n".join(parts)


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="line" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>'


def _architecture() -> str:
    """Draw packages and the layers of hal, whose imports point downward."""
    width, parts = 760, []
    parts.append(
        _box(20, 15, 720, 46, "orange", "apps", "the trainer, models, text generation and serving, forecasts, reports")
    )
    parts.append(
        _box(
            20,
            75,
            720,
            46,
            "blue",
            "frontend (import polyhal)",
            "Tensor, autograd, nn, optim, data, torch, onnx, command line",
        )
    )
    parts += [_arrow(380, 61, 380, 75), _arrow(200, 121, 200, 135)]
    layers = list(reversed(HAL))
    top, step = 135, 50
    parts.append(f'<rect class="box" x="20" y="{top}" width="440" height="{step * len(layers) + 30}" rx="4"/>')
    parts.append(_text(34, top + 19, "hal", "title"))
    for i, layer in enumerate(layers):
        kind = "purple" if layer.name == "contract" else "green"
        parts.append(_box(34, top + 28 + step * i, 412, 42, kind, layer.name, layer.contents))
    bottom = top + 28 + step * (len(layers) - 1)
    backends = (
        ("opencl, cuda", "drivers of OpenCL and NVIDIA"),
        ("wgpu", "Vulkan, Metal, DirectX 12"),
        ("numpy, sim, null", "reference, simulated GPU, measuring"),
        ("your plug-in", "a package of its own"),
    )
    for i, (name, text) in enumerate(backends):
        kind = "box" if name.startswith("your") else "orange"
        parts.append(_box(500, top + 10 + 56 * i, 240, 46, kind, name, text))
    parts.append(_box(500, bottom - 6, 240, 48, "blue", "shaders", "kernels in OpenCL C and WGSL"))
    parts.append(_text(620, top + 248, "backends implement the contract", "small", "middle"))
    parts.append(f'<path class="line" d="M480 {top + 33}L480 {bottom + 21}L446 {bottom + 21}"/>')
    parts += [
        f'<path d="M500 {top + 33 + 56 * i}L480 {top + 33 + 56 * i}" stroke="#57606a"/>' for i in range(len(backends))
    ]
    return _svg("Packages of Polyhal and their layers; imports point downward", width, bottom + 62, parts)


def _gemm_tiles() -> str:
    """Draw a tile of a product, with its strips of both operands and the block of a work-item."""
    parts = [
        _text(215, 24, "b (K x N)", "title", "middle"),
        '<rect class="box" x="140" y="35" width="150" height="90"/>',
        '<rect class="blue" x="190" y="35" width="50" height="90"/>',
        '<rect class="purple" x="190" y="65" width="50" height="18"/>',
        _text(75, 140, "a (M x K)", "title", "middle"),
        '<rect class="box" x="30" y="150" width="90" height="120"/>',
        '<rect class="blue" x="30" y="190" width="90" height="40"/>',
        '<rect class="purple" x="60" y="190" width="18" height="40"/>',
        '<rect class="box" x="140" y="150" width="150" height="120"/>',
        '<rect class="green" x="190" y="190" width="50" height="40"/>',
        _text(215, 290, "out (M x N)", "title", "middle"),
        _text(300, 60, "a k-tile of both operands", "small"),
        _text(300, 75, "is copied to local memory", "small"),
        _arrow(298, 68, 242, 74),
        _text(30, 290, "k-tiles in turn", "small"),
        _arrow(46, 278, 74, 278),
        _arrow(244, 210, 400, 190),
        _text(455, 118, "one group: a tile", "title", "middle"),
        '<rect class="green" x="400" y="130" width="110" height="110"/>',
        *(
            f'<path class="grid" d="M{400 + 110 * i / 8:g} 130V240M400 {130 + 110 * i / 8:g}H510"/>'
            for i in range(1, 8)
        ),
        '<rect class="orange" x="427.5" y="157.5" width="13.75" height="13.75"/>',
        _text(455, 258, "blocks of its work-items", "small", "middle"),
        _arrow(443, 164, 570, 160),
        _text(625, 78, "one work-item: sums", "title", "middle"),
        _text(625, 95, "in registers", "title", "middle"),
        '<rect class="orange" x="585" y="130" width="80" height="80"/>',
        *(f'<path class="grid" d="M{585 + 20 * i} 130V210M585 {130 + 20 * i}H665"/>' for i in range(1, 4)),
        '<rect class="purple" x="585" y="112" width="80" height="12"/>',
        '<rect class="purple" x="567" y="130" width="12" height="80"/>',
        _text(625, 230, "per term: a row of b and a", "small", "middle"),
        _text(625, 245, "column of a from local memory", "small", "middle"),
    ]
    return _svg(
        "A tile of a matrix product, a k-tile of both operands, and the block of one work-item", 720, 305, parts
    )


def _flash_attention() -> str:
    """Draw the loop of a group over blocks of keys and values."""
    parts = [
        _text(250, 22, "for each block of keys and values", "title"),
        _box(15, 90, 140, 60, "blue", "block of queries", "resident in the group"),
        _box(190, 40, 140, 38, "purple", "keys"),
        _box(190, 95, 140, 50, "box", "scores", "q kᵀ * scale + mask"),
        _box(365, 95, 130, 50, "box", "online softmax", "maximum m, sum l"),
        _box(365, 162, 130, 38, "box", "p = exp(s - m)"),
        _box(365, 217, 130, 38, "purple", "values"),
        _box(535, 95, 170, 50, "green", "out = out * c + p v", "c = exp(m before - m)"),
        _box(535, 217, 170, 38, "orange", "write out / l, m + log l"),
        _arrow(155, 120, 190, 120),
        _arrow(260, 78, 260, 95),
        _arrow(330, 120, 365, 120),
        _arrow(430, 145, 430, 162),
        _arrow(495, 110, 535, 110),
        _arrow(495, 180, 550, 145),
        _arrow(495, 230, 575, 145),
        _arrow(640, 145, 640, 217),
        '<path class="line" d="M620 95L620 58L330 58"/>',
        _text(475, 52, "next block", "small", "middle"),
        _text(648, 185, "last block", "small"),
        _text(15, 230, "The scores of all queries and keys", "small"),
        _text(15, 246, "are never in global memory.", "small"),
    ]
    return _svg("Flash attention: a group's loop over blocks of keys", 720, 270, parts)


def _scan_lookback() -> str:
    """Draw tiles of a scan, whose groups publish totals and look back."""
    parts = []
    states = ("sum up to here", "sum up to here", "total", "total", "scans now")
    kinds = ("green", "green", "blue", "blue", "orange")
    for i, (state, kind) in enumerate(zip(states, kinds, strict=True)):
        x = 20 + 132 * i
        parts.append(_box(x, 40, 122, 44, kind, f"tile {i}", f"group {i}"))
        parts.append(_box(x, 120, 122, 34, kind, "", state))
        parts.append(_arrow(x + 61, 84, x + 61, 120))
    parts += [
        _text(20, 26, "x, read once", "title"),
        _text(20, 112, "published", "small"),
        '<path class="line" d="M600 154C590 190 490 190 478 158"/>',
        '<path class="line" d="M470 158C460 190 360 190 346 158"/>',
        '<path class="line" d="M338 158C328 190 228 190 214 158"/>',
        _text(400, 206, "looks back, adding totals, to the last sum that is complete", "small", "middle"),
    ]
    return _svg("A scan in one pass: each group looks back for the totals of earlier tiles", 690, 220, parts)
