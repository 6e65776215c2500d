"""Reductions and scans in OpenCL; kernels in shaders/opencl/reduction."""
