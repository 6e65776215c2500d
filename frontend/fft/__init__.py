"""Discrete Fourier transforms, with the names and arguments of `torch.fft` and of the Array API's extension of that name.

Devices of OpenCL and CUDA, and of wgpu in float32, have kernels for them; on others they run on the host, by NumPy's
pocketfft: `polyhal.explain` shows it. They take float32, float64, complex64 and complex128, and have gradients of every order.
"""

from polyhal.fft.frequencies import fftfreq, fftshift, ifftshift, rfftfreq  # noqa: F401
from polyhal.hal.ops import FFT as _FFT

globals().update(_FFT)
__all__ = sorted({*_FFT, "fftfreq", "fftshift", "ifftshift", "rfftfreq"})
