"""Elementwise ops, copies and random numbers in OpenCL; kernels in shaders/opencl/pointwise."""
