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
        "contract": _contract(),
        "lowering": _lowering(),
        "autograd": _autograd(),
        "scheduler": _scheduler(),
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


def _contract() -> str:
    """Draw the callers of the contract, its methods and protocols, and the backends."""
    parts = [
        _box(20, 30, 170, 44, "blue", "eager dispatch", "a launch per op"),
        _box(20, 90, 170, 44, "blue", "captured steps", "command buffers"),
        _box(20, 150, 170, 44, "blue", "conformance kit", "each op against float64"),
        '<rect class="purple" x="250" y="20" width="250" height="184" rx="4"/>',
        _text(375, 42, "ComputeBackend", "title", "middle"),
        _text(262, 66, "memory: allocate, deallocate", "small"),
        _text(262, 84, "copies: to the device, from it, fill, copy", "small"),
        _text(262, 102, "arithmetic: unary, binary, where, reduce,", "small"),
        _text(262, 118, "matmul, gather, scatter_add", "small"),
        _text(262, 136, "order: synchronize", "small"),
        '<path class="grid" d="M262 146H488"/>',
        _text(262, 164, "optional: lower (a Launch or Declined),", "small"),
        _text(262, 180, "streams, command buffers, graphs, peers", "small"),
        *(_arrow(190, y, 250, y) for y in (52, 112, 172)),
        _box(560, 30, 180, 44, "orange", "opencl, cuda, wgpu", "drivers of devices"),
        _box(560, 90, 180, 44, "orange", "numpy, sim", "reference, simulated GPU"),
        _box(560, 150, 180, 44, "box", "your plug-in", "119 lines are enough"),
        *(_arrow(500, y, 560, y) for y in (52, 112, 172)),
    ]
    return _svg("Callers of the contract, its methods, and backends that implement it", 760, 224, parts)


def _lowering() -> str:
    """Draw the steps of a resolution in their order."""
    steps = (
        ("native kernel", "lower returns a Launch", "green"),
        ("core method", "after contiguous copies", "green"),
        ("decomposition", "ops, each resolved", "green"),
        ("host", "NumPy, if allowed", "box"),
    )
    parts = [
        _box(20, 20, 150, 46, "blue", "a call", "op, parameters, specs"),
        _box(230, 20, 150, 46, "purple", "plans of the device", "a dictionary"),
        _box(560, 20, 180, 46, "orange", "launch", "result from the memory pool"),
        _arrow(170, 43, 230, 43),
        _arrow(380, 43, 560, 43),
        _text(470, 35, "hit", "small", "middle"),
        _arrow(260, 66, 95, 120),
        _text(200, 100, "miss", "small"),
    ]
    for i, (title, text, kind) in enumerate(steps):
        x = 20 + 187 * i
        parts.append(_box(x, 120, 160, 46, kind, title, text))
        if i:
            parts += [_arrow(x - 27, 143, x, 143), _text(x - 13, 183, "declined", "small", "middle")]
    parts += [
        '<path class="line" d="M100 166V205H752V43H740"/>',
        _text(
            112, 226, "the first step that succeeds becomes the plan; explain shows the reasons of the others", "small"
        ),
    ]
    return _svg("Steps that turn a call without a plan into a launch", 760, 240, parts)


def _autograd() -> str:
    """Draw a tape of three nodes with the backward pass below."""
    parts = [_text(20, 22, "forward", "title"), _text(20, 172, "backward", "title")]
    nodes = (("w * 3", "saves: nothing, 3 is a number"), ("exp", "saves: its result"), ("sum", "saves: the shape"))
    parts.append(_box(20, 40, 90, 46, "blue", "w", "a leaf"))
    for i, (title, text) in enumerate(nodes):
        x = 150 + 205 * i
        parts += [_box(x, 40, 180, 46, "green", title, text), _arrow(x - (40 if i == 0 else 25), 63, x, 63)]
        parts += [
            _box(x, 190, 180, 46, "purple", f"rule of {title}", "reads saved values"),
            _arrow(x + 90, 86, x + 90, 190),
        ]
        parts.append(_arrow(x, 213, x - (40 if i == 0 else 25), 213))
    parts += [
        _box(20, 190, 90, 46, "blue", "w.grad", "added in place"),
        _text(250, 132, "nodes of the tape", "small"),
        _text(
            20,
            262,
            "between two nodes a gradient is read-only; a leaf may add to memory that nothing else refers to",
            "small",
        ),
        _text(20, 280, "a rule compares versions: it raises an error if a saved value was changed in place", "small"),
    ]
    return _svg("A tape of three nodes, and the backward pass over it", 760, 290, parts)


def _scheduler() -> str:
    """Draw the way from a recorded graph to an executable, and values that share an arena."""
    stages = ("record", "passes", "schedule", "arena", "replay")
    texts = ("a graph of ops", "simplify, fuse, lay out", "order of launches", "offsets of values", "one submission")
    parts = []
    for i, (title, text) in enumerate(zip(stages, texts, strict=True)):
        x = 20 + 147 * i
        parts.append(_box(x, 20, 130, 46, "orange" if title == "replay" else "green", title, text))
        if i:
            parts.append(_arrow(x - 17, 43, x, 43))
    parts += [
        _text(
            20,
            104,
            "arena: bytes upward, launches to the right; values whose lifetimes do not overlap share bytes",
            "small",
        ),
        '<path class="line" d="M40 226V116"/>',
        '<path class="line" d="M40 226H740"/>',
    ]
    values = (
        (60, 190, 250, 30, "blue", "activation"),
        (180, 156, 260, 30, "purple", "hidden"),
        (330, 190, 200, 30, "green", "gradient"),
        (460, 130, 170, 56, "orange", "weight gradient"),
        (550, 190, 150, 30, "blue", "update"),
    )
    for x, y, width, height, kind, name in values:
        parts += [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>']
        parts.append(_text(x + width / 2, y + height / 2 + 4, name, "small", "middle"))
    return _svg("From a recorded step to its replay, and lifetimes of values in an arena", 760, 240, parts)
