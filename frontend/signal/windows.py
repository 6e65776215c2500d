"""Window functions under the names and arguments of torch.signal.windows; SciPy's of the same names agree.

Each is computed in float64 on the host, where it is made once. `M` is the length, and `sym=False` gives a window that continues
periodically, for spectra. Without elements or with one, there is nothing to taper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import message
from polyhal.hal.ops.top_level import top_level
from polyhal.tensor import Tensor

Target = Device | str | None


def _made(name: str, values: np.ndarray, dtype: object, device: Target, requires_grad: bool) -> Tensor:
    kind = dtypes.DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    if not kind.is_floating_point:
        raise TypeError(message(name, f"dtype {kind.name}", expected="a floating-point dtype"))
    return Tensor(values, dtype=kind, device=device, requires_grad=requires_grad)


def _numbers(name: str, length: int) -> np.ndarray:
    if length < 0:
        raise ValueError(message(name, f"M is {length}", expected="a length of 0 or more"))
    check_host_memory(name, 3 * 8 * length)
    return np.arange(length, dtype=np.float64)


def _period(length: int, sym: bool) -> int:
    """Distance after which the window would repeat."""
    return max(length - 1 if sym else length, 1)


def _cosines(length: int, weights: Sequence[float], sym: bool) -> np.ndarray:
    """A sum of cosines with alternating signs; a single element is 1, as is the middle of a window."""
    if length == 1:
        return np.ones(1)
    angles = 2 * np.pi / _period(length, sym) * _numbers("general_cosine", length)
    return np.asarray(sum(((-1) ** i * w * np.cos(i * angles) for i, w in enumerate(weights)), np.zeros(length)))


def general_cosine(
    M: int,  # noqa: N803  PyTorch's name, here and below
    *,
    a: Sequence[float],
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make `M` samples of a sum of cosines of multiples of one frequency, weighted by `a`: shape (M,).

    Raises ValueError without weights.
    """
    if not a:
        raise ValueError(message("general_cosine", "there are no weights", expected="one at least"))
    return _made("general_cosine", _cosines(M, tuple(a), sym), dtype, device, requires_grad)


def general_hamming(
    M: int,  # noqa: N803
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make alpha - (1 - alpha) cos: Hann's window with alpha = 0.5, Hamming's with 0.54."""
    values = _cosines(M, (alpha, 1 - alpha), sym)
    return _made("general_hamming", values, dtype, device, requires_grad)


def hamming(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Hamming's window."""
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def hann(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Hann's window, a period of a raised cosine."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Blackman's window."""
    return _made("blackman", _cosines(M, (0.42, 0.5, 0.08), sym), dtype, device, requires_grad)


def nuttall(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Nuttall's window of four terms with the least side lobes."""
    values = _cosines(M, (0.3635819, 0.4891775, 0.1365995, 0.0106411), sym)
    return _made("nuttall", values, dtype, device, requires_grad)


def bartlett(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Bartlett's window, a triangle."""
    values = np.ones(1) if M == 1 else 1 - np.abs(2 / _period(M, sym) * _numbers("bartlett", M) - 1)
    return _made("bartlett", values, dtype, device, requires_grad)


def cosine(
    M: int,  # noqa: N803
    *,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make half a period of a sine."""
    period = M + 1 if not sym and M > 1 else max(M, 1)
    return _made("cosine", np.sin(np.pi / period * (_numbers("cosine", M) + 0.5)), dtype, device, requires_grad)


def gaussian(
    M: int,  # noqa: N803
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a bell of standard deviation `std`, in elements. Raises ValueError unless that is positive."""
    if std <= 0:
        raise ValueError(message("gaussian", f"std is {std}", expected="a positive number"))
    middle = (M if not sym and M > 1 else M - 1) / 2
    values = np.exp(-0.5 * ((_numbers("gaussian", M) - middle) / std) ** 2)
    return _made("gaussian", values, dtype, device, requires_grad)


def exponential(
    M: int,  # noqa: N803
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a decay on both sides of `center`, by e in `tau` elements. Raises ValueError for a center of a symmetric window."""
    if tau <= 0:
        raise ValueError(message("exponential", f"tau is {tau}", expected="a positive number"))
    if sym and center is not None:
        raise ValueError(message("exponential", "a symmetric window has its center in the middle", fix="use sym=False"))
    middle = (M if not sym and M > 1 else M - 1) / 2 if center is None else center
    values = np.exp(-np.abs(_numbers("exponential", M) - middle) / tau)
    return _made("exponential", values, dtype, device, requires_grad)


def kaiser(
    M: int,  # noqa: N803
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Kaiser's window of shape `beta`, 0 or more: a quotient of Bessel functions I0.

    Raises ValueError for a negative `beta`.
    """
    if beta < 0:
        raise ValueError(message("kaiser", f"beta is {beta}", expected="a number of 0 or more"))
    place = 2 / _period(M, sym) * _numbers("kaiser", M) - 1 if M != 1 else np.zeros(1)
    values = np.i0(beta * np.sqrt(np.maximum(1 - place**2, 0))) / np.i0(np.float64(beta))
    return _made("kaiser", values, dtype, device, requires_grad)


# --- PyTorch's older names, at top level ----------------------------------------------------------------------------


@top_level
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Hann's window, periodic by default; see `signal.windows.hann`.

    >>> [round(w, 6) for w in polyhal.hann_window(4).tolist()]
    [0.0, 0.5, 1.0, 0.5]
    """
    return hann(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@top_level
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make alpha - beta cos, Hamming's window, periodic by default; see `signal.windows.hamming`."""
    values = _cosines(window_length, (alpha, beta), not periodic)
    return _made("hamming_window", values, dtype, device, requires_grad)


@top_level
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Blackman's window, periodic by default; see `signal.windows.blackman`."""
    return blackman(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@top_level
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Bartlett's window, periodic by default; see `signal.windows.bartlett`."""
    return bartlett(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@top_level
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: object = None,
    device: Target = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make Kaiser's window, periodic by default; see `signal.windows.kaiser`."""
    sym = not periodic
    return kaiser(window_length, beta=beta, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)
