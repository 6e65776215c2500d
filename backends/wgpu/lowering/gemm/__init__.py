"""Matrix products in WGSL; kernels in shaders/wgsl/gemm."""
