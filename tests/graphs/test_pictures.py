"""Captured steps drawn, explained and timed."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import polyhal as ph
from polyhal.graphs.selection import recorded_step
from polyhal.steps.jit import Jitted


def make_step(device: ph.Device) -> Jitted[..., ph.Tensor]:
    """Two layers, a fused group, a duplicate and a dead op."""
    ph.manual_seed(0)
    nn = ph.nn
    model = nn.Sequential(nn.Linear(5, 7, device=device), nn.Tanh(), nn.Linear(7, 2, device=device))

    def function(x: ph.Tensor) -> ph.Tensor:
        y = model(x)
        z = ph.exp(y) * 2.0 + ph.exp(y)
        ph.sqrt(z)
        return z.reshape(-1).sum()

    step = ph.jit(function, warm_up=False)
    assert isinstance(step, Jitted)
    for _ in range(2):
        step(ph.ones((3, 5), device=device))
    return step


class _Page(HTMLParser):
    """Checks that elements close in order, and collects rows and the module headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[str] = []
        self.headings: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        found = dict(attrs)
        if (found.get("class") or "").startswith("row"):
            self.rows.append(str(found["title"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "summary":
            self.headings.append(data.strip())


def test_page(numpy_device: ph.Device, tmp_path: Path) -> None:
    step = make_step(numpy_device)
    with step.profile() as profile:
        step(ph.ones((3, 5), device=numpy_device))
    text = ph.draw_graph(step, tmp_path / "step.html", profile).read_text()
    page = _Page(text)
    assert not page.open
    graph = recorded_step(step).executable.graph
    assert len(page.rows) == graph.inputs + len(graph.nodes)
    assert page.headings[:2] == ["inputs", "0"]
    assert text.count(">step</") == 2
    assert "core method" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [d["number"] for d in data] == list(range(len(data)))
    assert any(d["us"] for d in data)
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "the page stands alone"


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    from polyhal.hal.compile.ir.parse import parse

    graph = parse('%0: float32[2]  # </script><b>&"\n%1 = exp(%0): float32[2]\nreturn %1')
    text = ph.draw_graph(graph, tmp_path / "odd.html").read_text()
    assert not _Page(text).open
    assert text.count("</script>") == 2
    assert '\\"' in ph.draw_graph(graph, tmp_path / "odd.dot").read_text()


def test_dot(numpy_device: ph.Device, tmp_path: Path) -> None:
    step = make_step(numpy_device)
    text = ph.draw_graph(step, tmp_path / "step.dot").read_text()
    boxes = set(re.findall(r"^ *(b\d+) \[label=", text, re.MULTILINE))
    edges = re.findall(r"^  (b\d+) -> (b\d+);$", text, re.MULTILINE)
    assert edges
    assert all(a in boxes and b in boxes for a, b in edges)
    assert text.count("{") == text.count("}")
    assert 'subgraph "cluster_2"' in text
    with pytest.raises(ValueError, match=r"expected .html, .svg, .dot or .gv"):
        ph.draw_graph(step, tmp_path / "step.png")


def test_svg(numpy_device: ph.Device, tmp_path: Path) -> None:
    """Operands are above their users, boxes do not overlap, and each edge joins the borders of two boxes."""
    step = make_step(numpy_device)
    root = ElementTree.parse(ph.draw_graph(step, tmp_path / "step.svg")).getroot()
    name = "{http://www.w3.org/2000/svg}"
    boxes = []
    for group in root.iter(f"{name}g"):
        rect = group.find(f"{name}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
        assert [t.text for t in group.iter(f"{name}text")]
    graph = recorded_step(step).executable.graph
    assert len(boxes) >= len(graph.nodes)
    for (ax, ay, ar, ab), (bx, by, br, bb) in itertools.combinations(boxes, 2):
        assert ar <= bx or br <= ax or ab <= by or bb <= ay
    lower = {(round((x + r) / 2), round(b)) for x, _, r, b in boxes}
    upper = {(round((x + r) / 2), round(y)) for x, y, r, _ in boxes}
    paths = [re.findall(r"-?[\d.]+", p.attrib["d"]) for p in root.iter(f"{name}path") if "marker-end" in p.attrib]
    assert paths
    for numbers in paths:
        (ax, ay), (bx, by) = map(float, numbers[:2]), map(float, numbers[-2:])
        assert ay < by
        assert any(abs(ax - x) <= 1 and abs(ay - y) <= 1 for x, y in lower)
        assert any(abs(bx - x) <= 1 and abs(by - y) <= 1 for x, y in upper)


def test_svg_of_an_empty_graph(tmp_path: Path) -> None:
    from polyhal.hal.compile.ir.parse import parse

    graph = parse("%0: float32[2]\nreturn %0")
    root = ElementTree.parse(ph.draw_graph(graph, tmp_path / "empty.svg")).getroot()
    assert all(float(root.attrib[key]) > 0 for key in ("width", "height"))


def test_explanation_and_profile(device: ph.Device) -> None:
    step = make_step(device)
    text = step.explain()
    (graph,) = step.graphs
    assert text.startswith(f"{len(graph.nodes)} ops were recorded; ")
    assert "merge_common_subexpressions: 1 exp removed" in text
    assert "remove_dead_code: 1 sqrt removed" in text
    assert text.count("  # 2\n") >= 1
    if device.name.startswith("opencl"):
        assert "fused_elementwise" in text
        assert re.search(r"fuses .*multiply, add", text)
    x = ph.ones((3, 5), device=device)
    plain = step(x).numpy()
    with step.profile() as profile:
        for _ in range(3):
            assert np.array_equal(step(x).numpy(), plain)
    step(x)
    assert profile.runs == 3
    executable = recorded_step(step).executable
    for call in executable.calls:
        if call is not None:
            assert profile.time_of(call.node) is not None, call.node.op.name
    assert profile.total == sum(n for _, n in profile.modules())
    assert {"0", "2"} <= {module for module, _ in profile.modules()}
    assert profile.nodes[0].op in profile.table()
