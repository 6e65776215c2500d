"""Tests of elementwise functions beyond the conformance kit: edges, dtypes, PyTorch's conventions."""
