"""Passes: functions from a graph to a better graph that computes the same. One per file."""
