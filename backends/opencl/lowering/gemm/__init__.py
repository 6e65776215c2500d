"""Matrix products (GEMM) in OpenCL: dispatch.py chooses, each strategy has a file; kernels in shaders/opencl/gemm."""
