"""Discrete Fourier transforms in WGSL; kernels in shaders/wgsl/fft."""
