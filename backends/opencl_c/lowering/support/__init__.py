"""Helpers that lowering functions share; the headers are in shaders/opencl/lib."""
