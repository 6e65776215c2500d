"""Quantised weights in OpenCL; kernels in shaders/opencl/quantized."""
