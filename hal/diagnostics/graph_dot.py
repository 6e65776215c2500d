"""A graph in the DOT language of Graphviz: modules as nested clusters, ops coloured by family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from polyhal.hal.diagnostics.graph_picture import INPUT, Box


@dataclass(slots=True)
class _Cluster:
    """A module: its own boxes, and the modules within it by name."""

    boxes: list[Box] = field(default_factory=list)
    inner: dict[str, _Cluster] = field(default_factory=dict)


def write(boxes: Sequence[Box]) -> str:
    """The boxes as DOT text. Inputs that nothing reads are left out."""
    read = {i for b in boxes for i in b.reads}
    drawn = [b for b in boxes if b.family != INPUT or b.number in read]
    whole = _Cluster()
    for box in drawn:
        cluster = whole
        for part in box.module.split(".") if box.module else ():
            cluster = cluster.inner.setdefault(part, _Cluster())
        cluster.boxes.append(box)
    lines = [
        "digraph step {",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '  graph [fontname="sans-serif", fontsize=10, color="#999999", style=rounded];',
        *_cluster(whole, "", "  "),
        *(f"  b{source} -> b{b.number};" for b in drawn for source in b.reads),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _cluster(cluster: _Cluster, path: str, pad: str) -> list[str]:
    lines = []
    for box in cluster.boxes:
        label = f"{box.title}\n{box.kinds}"
        if box.nanoseconds is not None:
            label += f"\n{box.nanoseconds / 1e3:.1f} us"
        tip = "\n".join([box.text, *([box.kernel] if box.kernel else []), *box.notes])
        lines.append(
            f"{pad}b{box.number} [label={_quoted(label)}, tooltip={_quoted(tip)}, fillcolor={_quoted(box.colour)}];"
        )
    for name, inner in cluster.inner.items():
        whole = f"{path}.{name}" if path else name
        lines += [f"{pad}subgraph {_quoted('cluster_' + whole)} {{", f"{pad}  label={_quoted(name)};"]
        lines += _cluster(inner, whole, pad + "  ")
        lines.append(f"{pad}}}")
    return lines


def _quoted(text: str) -> str:
    """A DOT string. Its escapes are those of JSON, as far as they occur here."""
    return json.dumps(text, ensure_ascii=False)
