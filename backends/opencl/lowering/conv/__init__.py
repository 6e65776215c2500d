"""Convolution and pooling in OpenCL: dispatch.py chooses, one strategy per file; kernels in shaders/opencl/conv."""
