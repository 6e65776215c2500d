"""Passes: functions from a graph to a better graph that computes the same. One per file.

`optimize` runs them in the order in which each prepares the ground for the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.passes.claim_programs import claim_programs
from polyhal.hal.compile.passes.decompose import decompose
from polyhal.hal.compile.passes.fuse.activations import recognize_activations
from polyhal.hal.compile.passes.fuse.batch_products import batch_products
from polyhal.hal.compile.passes.fuse.batch_statistics import join_batch_norm
from polyhal.hal.compile.passes.fuse.cast_results import cast_results
from polyhal.hal.compile.passes.fuse.elementwise import fuse_elementwise
from polyhal.hal.compile.passes.fuse.epilogues import fuse_epilogues
from polyhal.hal.compile.passes.fuse.join_products import join_products
from polyhal.hal.compile.passes.fuse.lists import fuse_lists
from polyhal.hal.compile.passes.fuse.loss_gradients import fuse_loss_gradients
from polyhal.hal.compile.passes.fuse.norm_gradients import fuse_norm_gradients
from polyhal.hal.compile.passes.fuse.patterns import match_patterns
from polyhal.hal.compile.passes.fuse.recompute import recompute_cheap
from polyhal.hal.compile.passes.fuse.stored_attention import join_stored_attention
from polyhal.hal.compile.passes.layout.channels_last import channels_last
from polyhal.hal.compile.passes.layout.pad_gemm import pad_gemm
from polyhal.hal.compile.passes.layout.propagate_layouts import propagate_layouts
from polyhal.hal.compile.passes.layout.read_strided import read_strided
from polyhal.hal.compile.passes.layout.sink_reshapes import sink_reshapes
from polyhal.hal.compile.passes.merge_host_calls import merge_host_calls
from polyhal.hal.compile.passes.regather import regather
from polyhal.hal.compile.passes.simplify.algebra import simplify_algebra
from polyhal.hal.compile.passes.simplify.attention_masks import recognize_masks
from polyhal.hal.compile.passes.simplify.canonical_views import canonicalize_views
from polyhal.hal.compile.passes.simplify.common_subexpressions import merge_common_subexpressions
from polyhal.hal.compile.passes.simplify.constant_folding import fold_constants
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.passes.simplify.logit_casts import remove_logit_casts
from polyhal.hal.compile.passes.simplify.saved_variances import restore_variances
from polyhal.hal.compile.passes.simplify.views import simplify_views
from polyhal.hal.core.settings.log import logger

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_LOG = logger("passes")

_TIDYING = (simplify_views, simplify_algebra, fold_constants, merge_common_subexpressions, remove_dead_code)

PASSES = (
    canonicalize_views,
    recognize_masks,
    remove_logit_casts,
    restore_variances,
    *_TIDYING,
    claim_programs,
    recognize_activations,
    remove_dead_code,
    merge_host_calls,
    regather,
    match_patterns,
    decompose,
    *_TIDYING,
    channels_last,
    simplify_views,
    join_batch_norm,
    simplify_views,
    fuse_norm_gradients,
    remove_dead_code,
    cast_results,
    batch_products,
    simplify_views,
    read_strided,
    propagate_layouts,
    simplify_views,
    pad_gemm,
    fuse_loss_gradients,
    fuse_epilogues,
    simplify_views,
    join_products,
    simplify_views,
    join_stored_attention,
    sink_reshapes,
    simplify_views,
    recompute_cheap,
    remove_dead_code,
    fuse_elementwise,
    fuse_lists,
)


def optimize(graph: Graph, declined: Collection[Device] = ()) -> Graph:
    """Return the graph after all passes. Outputs that became one value get their own memory from the scheduler.

    Devices in `declined` get no programs (see `claim_programs`).
    """
    for step in PASSES:
        start, before = time.perf_counter(), len(graph.nodes)
        graph = apply_pass(step, graph, declined)
        milliseconds = 1e3 * (time.perf_counter() - start)
        _LOG.debug("%s: %d nodes, before %d, in %.2f ms", step.__name__, len(graph.nodes), before, milliseconds)
    return graph


def apply_pass(step: Callable[[Graph], Graph], graph: Graph, declined: Collection[Device]) -> Graph:
    """Return the graph after one of the passes; `declined` is as for `optimize`."""
    return claim_programs(graph, declined) if step is claim_programs else step(graph)
