"""Reading and adding by index in WGSL; kernels in shaders/wgsl/gather."""
