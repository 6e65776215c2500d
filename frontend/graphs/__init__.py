"""Captured steps as files, which load on any device, and as pictures."""

from polyhal.graphs.drawing import draw_graph
from polyhal.graphs.loading import LoadedGraph, load_graph
from polyhal.graphs.saving import save_graph

__all__ = ["LoadedGraph", "draw_graph", "load_graph", "save_graph"]
