"""Softmax, norms and losses: statistics of rows, and rows normalized with them. The kernels are in shaders/opencl/rowwise."""
