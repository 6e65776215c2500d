"""Exchanges between devices in OpenCL; kernels in shaders/opencl/collective."""
