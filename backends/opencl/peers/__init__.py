"""Copies between OpenCL devices, and memory that drivers share for them."""
