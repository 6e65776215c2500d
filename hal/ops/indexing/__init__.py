"""Ops that read and write by index: gather, scatter, rows of a cache, bracket notation."""
