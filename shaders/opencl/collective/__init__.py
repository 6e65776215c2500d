"""Collectives in OpenCL C."""
