"""Pictures of captured steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from polyhal.graphs.selection import recorded_step
from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.errors import message
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.diagnostics import graph_dot, graph_page, graph_svg
from polyhal.hal.system.diagnostics.graph_picture import boxes


@top_level
def draw_graph(step: Any, path: str | os.PathLike[str], profile: StepProfile | None = None) -> Path:
    """Draw a step as it runs, or a `Graph`: as an HTML page (`.html`), an image (`.svg`), or for Graphviz (`.dot`, `.gv`).

    A profile of the step adds times. Raises ValueError for another suffix, CaptureError as `save_graph` does, and OSError.
    """
    target = Path(path)
    executable = None if isinstance(step, Graph) else recorded_step(step).executable
    graph = step if executable is None else executable.graph
    picture = boxes(graph, executable, profile)
    if target.suffix == ".html":
        text = graph_page.write(picture, target.stem)
    elif target.suffix == ".svg":
        text = graph_svg.write(picture)
    elif target.suffix in (".dot", ".gv"):
        text = graph_dot.write(picture)
    else:
        raise ValueError(
            message("draw_graph", f"{target} ends in {target.suffix!r}", expected=".html, .svg, .dot or .gv")
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write(text.encode())
    return target
