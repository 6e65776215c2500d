"""Discrete Fourier transforms in OpenCL; kernels in shaders/opencl/fft."""
