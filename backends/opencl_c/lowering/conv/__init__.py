"""Convolution, pooling and resampling in OpenCL: dispatch.py chooses, one strategy per file; kernels in shaders/opencl/conv."""
