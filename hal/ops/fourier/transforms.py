"""Discrete Fourier transforms of real and imaginary parts: complex to complex, real to half a spectrum, and back.

A transform is a sum over `exp(-2i pi j k / n)`, of `exp(2i pi j k / n)` if inverse, along each of `axes`, times `scale`. A real
signal of length n has a spectrum whose n // 2 + 1 numbers along the last of `axes` tell the others. The adjoint of each
transform is another one, which is all that gradients need.

`lengths` are those of the transforms of numbers followed by zeros; () stands for the operand's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.declare import (
    Autocast,
    ErrorSample,
    OnHost,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
    tensor_at,
)
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.tensor_like import Array, TensorLike

_ON_HOST = OnHost("the backend has no kernels of Fourier transforms; NumPy's pocketfft computes them")
_DTYPES = (dtypes.float32, dtypes.float64)


def _terms(specs: Specs, params: Params) -> int:
    """The number of terms that each result sums up."""
    shape = first_tensor(specs).shape
    return int(np.prod(params.get("lengths") or [shape[a] for a in params["axes"]])) or 1


_ERROR = Tolerance(8.0, floor=1.0, terms=_terms)
"""Errors grow with the logarithm of the length (Schatzman 1996), which the number of terms bounds amply."""


def _complex(re: Array, im: Array) -> Any:
    re, im = np.asarray(re), np.asarray(im)
    out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    out.real, out.imag = re, im
    return out


def _parts(z: Array) -> tuple[Any, Any]:
    return z.real, z.imag


def _checked(name: str, specs: Specs, params: dict[str, Any]) -> Spec:
    """The operands' common spec; axes are counted from the front."""
    spec = first_tensor(specs)
    if spec.dtype not in _DTYPES:
        raise UnsupportedDTypeError(
            message(name, f"got {spec.dtype.name}", expected="float32 or float64", fix="cast with .to(dtype)")
        )
    axes = params["axes"] = tuple(normalize_axis(a, spec.ndim) for a in params["axes"])
    if len(set(axes)) != len(axes) or not axes:
        raise ValueError(f"axes {axes}; expected different ones, one at least")
    if any(spec.shape[a] < 1 for a in axes):
        raise ValueError(f"shape {spec.shape} has no elements along axes {axes}")
    params["scale"] = float(params["scale"])
    return spec


def _same_shape(specs: Specs) -> None:
    shapes = [tensor_at(specs, i).shape for i in (0, 1)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"parts of shapes {shapes[0]} and {shapes[1]}; expected equal ones")


def _with_length(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _padded(spec: Spec, params: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the operand followed by zeros; `lengths` that are the operand's become ()."""
    lengths = tuple(int(n) for n in params["lengths"])
    shape = list(spec.shape)
    if lengths and len(lengths) != len(params["axes"]):
        raise ValueError(f"{len(lengths)} lengths for {len(params['axes'])} axes")
    for axis, n in zip(params["axes"], lengths, strict=False):
        if n < shape[axis]:
            raise ValueError(
                f"length {n} along axis {axis}; expected {shape[axis]} or more, as many as the operand has"
            )
        shape[axis] = n
    params["lengths"] = lengths if tuple(shape) != spec.shape else ()
    return tuple(shape)


def _without_zeros(x: TensorLike, spec: Spec, lengths: tuple[int, ...]) -> Any:
    """The first numbers along each axis, as many as the operand had."""
    return slice_(x, (0,) * x.ndim, spec.shape, (1,) * x.ndim) if lengths else x


def _batched(call: Any) -> Any:
    """The batch is one more leading axis."""
    axes = tuple(a % call.rank(0) + 1 for a in call.params["axes"])
    return call.apply(*(call.expanded(i) for i in range(len(call.inputs))), axes=axes)


def _filled(g_re: Any, g_im: Any) -> tuple[Any, Any]:
    """Both gradients, with zeros for one that is absent."""
    known = g_re if g_im is None else g_im
    zeros = None if g_re is not None and g_im is not None else full(known.shape, 0, known.dtype, device=known.device)
    return zeros if g_re is None else g_re, zeros if g_im is None else g_im


# --- complex to complex ---------------------------------------------------------------------------------------------


def _fourier(
    re: Array,
    im: Array,
    *,
    axes: tuple[int, ...],
    inverse: bool = False,
    scale: float = 1.0,
    lengths: tuple[int, ...] = (),
) -> Any:
    """The transform of complex numbers."""
    z, s = _complex(re, im), lengths or None
    out = np.fft.ifftn(z, s, axes=axes, norm="forward") if inverse else np.fft.fftn(z, s, axes=axes)
    return _parts(out * np.asarray(scale, out.real.dtype))


def _infer_fourier(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _checked("fft", specs, params)
    _same_shape(specs)
    params["inverse"] = bool(params["inverse"])
    return [(spec.dtype, _padded(spec, params))] * 2


def _fourier_gradient(
    g_out_re: TensorLike,
    g_out_im: TensorLike,
    re_spec: Spec,
    *,
    axes: tuple[int, ...],
    inverse: bool,
    scale: float,
    lengths: tuple[int, ...],
) -> Any:
    parts = fourier(*_filled(g_out_re, g_out_im), axes, not inverse, scale)
    return tuple(_without_zeros(part, re_spec, lengths) for part in parts)


fourier: OpFunction = declare(
    _fourier,
    name="fourier",
    family="fourier",
    infer=_infer_fourier,
    outputs=("out_re", "out_im"),
    lowering=_ON_HOST,
    batching=_batched,
    gradient=_fourier_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 8)), rng.uniform(-1, 1, (3, 8))), {"axes": (-1,), "scale": 0.5}),
        Sample((rng.uniform(-1, 1, (3, 5, 2)), rng.uniform(-1, 1, (3, 5, 2))), {"axes": (1, 0), "inverse": True}),
        Sample((rng.uniform(-1, 1, (3, 5)), rng.uniform(-1, 1, (3, 5))), {"axes": (0, 1), "lengths": (3, 7)}),
    ],
    errors=[
        ErrorSample((np.zeros((2, 0)), np.zeros((2, 0))), {"axes": (1,)}, ValueError, "no elements along"),
        ErrorSample((np.zeros((2, 3)), np.zeros((2, 3))), {"axes": (1, -1)}, ValueError, "expected different ones"),
        ErrorSample((np.zeros((2, 3)), np.zeros((3, 2))), {"axes": (1,)}, ValueError, "expected equal ones"),
        ErrorSample((np.zeros((2, 3)),) * 2, {"axes": (1,), "lengths": (2,)}, ValueError, "expected 3 or more"),
        ErrorSample((np.zeros((2, 3)),) * 2, {"axes": (1,), "lengths": (4, 4)}, ValueError, "2 lengths for 1 axes"),
    ],
    dtypes=_DTYPES,
    tolerance=_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


# --- real to half a spectrum ----------------------------------------------------------------------------------------


def _real_fourier(x: Array, *, axes: tuple[int, ...], scale: float = 1.0, lengths: tuple[int, ...] = ()) -> Any:
    """The first half of the transform of real numbers along the last of `axes`."""
    out = np.fft.rfftn(np.asarray(x), lengths or None, axes=axes)
    return _parts(out * np.asarray(scale, out.real.dtype))


def _infer_real(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _checked("rfft", specs, params)
    axis, shape = params["axes"][-1], _padded(spec, params)
    return [(spec.dtype, _with_length(shape, axis, shape[axis] // 2 + 1))] * 2


def _real_gradient(
    g_out_re: TensorLike,
    g_out_im: TensorLike,
    x_spec: Spec,
    *,
    axes: tuple[int, ...],
    scale: float,
    lengths: tuple[int, ...],
) -> Any:
    axis = axes[-1]
    n = lengths[-1] if lengths else x_spec.shape[axis]
    out = half_fourier(*(_edges(g, axis, n, 0.5) for g in _filled(g_out_re, g_out_im)), axes, n, scale)
    return _without_zeros(out, x_spec, lengths)


def _edges(x: TensorLike, axis: int, length: int, inner: float) -> Any:
    """Half a spectrum with all numbers scaled by `inner` but those that have no mirror image: the first, and one at n / 2."""
    axis %= x.ndim
    stop = (length + 1) // 2

    def part(start: int, end: int) -> Any:
        starts = tuple(start if a == axis else 0 for a in range(x.ndim))
        return slice_(x, starts, _with_length(x.shape, axis, end - start), (1,) * x.ndim)

    pieces = [part(0, 1), part(1, stop) * inner, part(stop, x.shape[axis])]
    return concat([p for p in pieces if p.shape[axis]], axis)


real_fourier: OpFunction = declare(
    _real_fourier,
    name="real_fourier",
    family="fourier",
    infer=_infer_real,
    outputs=("out_re", "out_im"),
    lowering=_ON_HOST,
    batching=_batched,
    gradient=_real_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 8)),), {"axes": (-1,), "scale": 0.5}),
        Sample((rng.uniform(-1, 1, (4, 5, 2)),), {"axes": (0, 1)}),
        Sample((rng.uniform(-1, 1, (1, 3)),), {"axes": (0,)}),
        Sample((rng.uniform(-1, 1, (3, 5)),), {"axes": (0, 1), "lengths": (4, 8)}),
    ],
    errors=[ErrorSample((np.zeros((2, 0)),), {"axes": (1,)}, ValueError, "no elements along")],
    dtypes=_DTYPES,
    tolerance=_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


# --- half a spectrum to real ----------------------------------------------------------------------------------------


def _half_fourier(re: Array, im: Array, *, axes: tuple[int, ...], length: int, scale: float = 1.0) -> Any:
    """The inverse transform, of `length` real numbers along the last of `axes`, of the first half of a spectrum."""
    z, axis = _complex(re, im), axes[-1]
    if len(axes) > 1:
        z = np.fft.ifftn(z, axes=axes[:-1], norm="forward")
    out = np.fft.irfft(z, length, axis=axis, norm="forward")
    return out * np.asarray(scale, out.dtype)


def _infer_half(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _checked("irfft", specs, params)
    _same_shape(specs)
    axis, n = params["axes"][-1], int(params["length"])
    params["length"] = n
    if n < 1 or spec.shape[axis] != n // 2 + 1:
        raise ValueError(f"{spec.shape[axis]} numbers; expected length // 2 + 1 of a length {n}")
    return [(spec.dtype, _with_length(spec.shape, axis, n))]


def _half_gradient(g: TensorLike, *, axes: tuple[int, ...], length: int, scale: float) -> Any:
    return tuple(_edges(part, axes[-1], length, 2.0) for part in real_fourier(g, axes, scale))


half_fourier: OpFunction = declare(
    _half_fourier,
    name="half_fourier",
    family="fourier",
    infer=_infer_half,
    lowering=_ON_HOST,
    batching=_batched,
    gradient=_half_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 5)), rng.uniform(-1, 1, (3, 5))), {"axes": (-1,), "length": 8, "scale": 0.5}),
        Sample((rng.uniform(-1, 1, (4, 3, 2)), rng.uniform(-1, 1, (4, 3, 2))), {"axes": (0, 1), "length": 5}),
        Sample((rng.uniform(-1, 1, (1, 3)), rng.uniform(-1, 1, (1, 3))), {"axes": (0,), "length": 1}),
    ],
    errors=[
        ErrorSample((np.zeros(3), np.zeros(3)), {"axes": (0,), "length": 8}, ValueError, "expected length // 2 . 1")
    ],
    dtypes=_DTYPES,
    tolerance=_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
