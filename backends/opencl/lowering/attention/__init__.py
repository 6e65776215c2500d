"""Attention in OpenCL: dispatch.py chooses a strategy, each of which has a file; kernels are in shaders/opencl/attention."""
