"""Passes that make one op of several: matched formulas, epilogues, elementwise groups."""
