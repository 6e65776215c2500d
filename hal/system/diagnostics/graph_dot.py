"""Graphs in Graphviz's DOT language: modules are nested clusters, ops are coloured by family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from polyhal.hal.system.diagnostics.graph_picture import INPUT, Box


@dataclass(slots=True)
class _Cluster:
    """A module: its boxes, and its submodules by name."""

    boxes: list[Box] = field(default_factory=list)
    inner: dict[str, _Cluster] = field(default_factory=dict)


def write(boxes: Sequence[Box]) -> str:
    """Return the boxes as DOT text, without unused inputs."""
    used = {i for b in boxes for i in b.reads}
    drawn = [b for b in boxes if b.family != INPUT or b.number in used]
    root = _Cluster()
    for box in drawn:
        cluster = root
        for part in box.module.split(".") if box.module else ():
            cluster = cluster.inner.setdefault(part, _Cluster())
        cluster.boxes.append(box)
    lines = [
        "digraph step {",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '  graph [fontname="sans-serif", fontsize=10, color="#999999", style=rounded];',
        *_cluster(root, "", "  "),
        *(f"  b{source} -> b{b.number};" for b in drawn for source in b.reads),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _cluster(cluster: _Cluster, path: str, pad: str) -> list[str]:
    lines = []
    for box in cluster.boxes:
        label = f"{box.title}\n{box.specs}"
        if box.nanoseconds is not None:
            label += f"\n{box.nanoseconds / 1e3:.1f} us"
        tip = "\n".join([box.text, *([box.kernel] if box.kernel else []), *box.notes])
        lines.append(
            f"{pad}b{box.number} [label={_quoted(label)}, tooltip={_quoted(tip)}, fillcolor={_quoted(box.colour)}];"
        )
    for name, inner in cluster.inner.items():
        inner_path = f"{path}.{name}" if path else name
        lines += [f"{pad}subgraph {_quoted('cluster_' + inner_path)} {{", f"{pad}  label={_quoted(name)};"]
        lines += _cluster(inner, inner_path, pad + "  ")
        lines.append(f"{pad}}}")
    return lines


def _quoted(text: str) -> str:
    """Quote text for DOT, whose escapes are JSON's for the characters that occur here."""
    return json.dumps(text, ensure_ascii=False)
