"""Passes: functions from a graph to a better graph that computes the same. One per file.

`optimize` runs them in the order in which each prepares the ground for the next.
"""

from __future__ import annotations

from polyhal.hal.graph import Graph
from polyhal.hal.passes.align_shapes import align_shapes
from polyhal.hal.passes.common_subexpressions import merge_common_subexpressions
from polyhal.hal.passes.dead_code import remove_dead_code
from polyhal.hal.passes.decompose import decompose
from polyhal.hal.passes.fold_constants import fold_constants
from polyhal.hal.passes.fuse_elementwise import fuse_elementwise
from polyhal.hal.passes.fuse_products import fuse_products
from polyhal.hal.passes.join_relu import join_relu
from polyhal.hal.passes.pad_logits import pad_logits
from polyhal.hal.passes.place_results import place_results
from polyhal.hal.passes.recognize import recognize
from polyhal.hal.passes.simplify_algebra import simplify_algebra
from polyhal.hal.passes.simplify_views import simplify_views

_TIDYING = (simplify_views, simplify_algebra, fold_constants, merge_common_subexpressions, remove_dead_code)

PASSES = (
    *_TIDYING,
    recognize,
    decompose,
    *_TIDYING,
    place_results,
    simplify_views,
    pad_logits,
    fuse_products,
    join_relu,
    simplify_views,
    align_shapes,
    simplify_views,
    remove_dead_code,
    fuse_elementwise,
)


def optimize(graph: Graph) -> Graph:
    """The graph after all passes."""
    for step in PASSES:
        graph = step(graph)
    return graph
