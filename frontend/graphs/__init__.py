"""Captured steps as objects: saved to files and loaded on any device, and drawn."""

from polyhal.graphs.drawing import draw_graph
from polyhal.graphs.loading import LoadedGraph, load_graph
from polyhal.graphs.saving import save_graph

__all__ = ["LoadedGraph", "draw_graph", "load_graph", "save_graph"]
