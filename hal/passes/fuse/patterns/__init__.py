"""Formulas that `recognize` knows, by the op that ends them. Those that hold others come first."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.hal.ir.graph import Node
from polyhal.hal.passes.fuse.patterns.gelu import gelu
from polyhal.hal.passes.fuse.patterns.norm import layer_norm, rms_norm
from polyhal.hal.passes.fuse.patterns.reader import Match, Reader
from polyhal.hal.passes.fuse.patterns.softmax import log_softmax, softmax

Formula = Callable[[Reader, Node], Match | None]

FORMULAS: dict[str, tuple[Formula, ...]] = {
    "add": (layer_norm,),
    "subtract": (log_softmax,),
    "multiply": (gelu, layer_norm, rms_norm),
    "divide": (softmax, gelu, layer_norm, rms_norm),
}
