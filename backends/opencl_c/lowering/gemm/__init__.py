"""Matrix products (GEMM) in OpenCL: dispatch.py chooses, one strategy per file; kernels are in shaders/opencl/gemm."""
