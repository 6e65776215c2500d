"""Ops that move or make elements and compute nothing: views, copies, constants, transfers."""
