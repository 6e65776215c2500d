"""Optimizer steps in OpenCL; kernels in shaders/opencl/optim."""
