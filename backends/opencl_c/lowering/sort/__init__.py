"""Sorting in OpenCL; kernels in shaders/opencl/sort."""
