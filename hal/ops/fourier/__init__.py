"""Discrete Fourier transforms: ops on real and imaginary parts, and the functions of `polyhal.fft` made of them."""
