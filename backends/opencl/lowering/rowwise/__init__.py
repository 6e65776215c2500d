"""Softmax, norms and losses in OpenCL: statistics of rows, and rows written with them; kernels in shaders/opencl/rowwise."""
