"""Running an op through its native kernel and comparing it with the op's NumPy reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.settings.state import settings
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Declined, Launch

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-50}


def upload(device: Any, array: np.ndarray) -> Ref:
    """`array` with its strides: the whole of the contiguous array under a view is sent, and the view rebuilt there."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not base.flags.c_contiguous:
        base = array = array.copy()
    ref = device.upload(base)
    distance = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = tuple(s // array.itemsize for s in array.strides)
    return device.view(ref, array.shape, strides, distance // array.itemsize)  # type: ignore[no-any-return]


def _spec(x: Any) -> Any:
    if x is None or isinstance(x, Ref):
        return None if x is None else x.spec
    return ScalarSpec(dtypes.int64 if isinstance(x, int) else dtypes.float32)


def lower(device: Any, op: str, inputs: list[Any], params: dict[str, Any]) -> tuple[Launch | Declined, list[Spec]]:
    """The backend's launch for these refs and numbers, and the specs of the outputs."""
    specs = tuple(_spec(x) for x in inputs)
    bound = {**OPS[op].schema.params, **params}
    outputs = [device.empty(d, shape).spec for d, shape in OPS[op].infer(specs, bound)]
    told = settings.among(OPS[op].settings, device.backend.capabilities.settings)
    return device.backend.lower(op, specs, tuple(outputs), {**bound, **told}), outputs


def run(device: Any, op: str, arrays: list[Any], **params: Any) -> list[np.ndarray]:
    """All outputs of an op. Inputs are arrays, Python numbers or None."""
    refs = [upload(device, x) if isinstance(x, np.ndarray) else x for x in arrays]
    answer, outputs = lower(device, op, refs, params)
    launch = device.accepted(answer)
    results = [device.empty(s.dtype, s.shape) for s in outputs]
    for result in results:
        if result.spec.size:  # no method of a backend is called with an empty reference
            # Elements that a kernel does not write must not look like an answer.
            device.backend.fill(77, result)
    launch(*refs, *results, *[device.backend.allocate(n) for n in launch.workspace])
    return [device.download(r) for r in results]


def check(
    device: Any,
    op: str,
    arrays: list[Any],
    dtype: DType = dtypes.float32,
    ulps: float = 8.0,
    magnitude: float = 0.0,
    **params: Any,
) -> None:
    """Every output is within `ulps` units, at its largest magnitude or at `magnitude`, of the reference in float64.

    Float64 arrays are cast to `dtype` first, keeping their strides.
    """
    if dtype not in device.backend.capabilities.storage:
        return
    cast = [_cast(x, dtype) for x in arrays]
    got = run(device, op, cast, **params)
    wide = [x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "fV" else x for x in cast]
    with np.errstate(all="ignore"):
        want = OPS[op].reference(*wide, **{**OPS[op].schema.params, **params})
    for result, expected in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        if result.dtype.kind not in "fV":
            np.testing.assert_array_equal(result, expected)
            continue
        limit = np.nanmax(np.abs(np.where(np.isfinite(expected), expected, 0))) if np.size(expected) else 0.0
        kind = dtypes.as_dtype(result.dtype)
        unit = max(EPSILON[kind.name], EPSILON[dtype.name] if dtype.is_floating_point else 0.0)
        np.testing.assert_allclose(
            result.astype(np.float64), expected, rtol=0, atol=ulps * unit * max(limit, magnitude, 1e-30)
        )


def _cast(x: Any, dtype: DType) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype != np.float64:
        return x
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    if base is x or not base.flags.c_contiguous:
        return x.astype(dtype.numpy, order="C")
    narrow = base.astype(dtype.numpy)
    offset = (x.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // x.itemsize * narrow.itemsize
    strides = tuple(s // x.itemsize * narrow.itemsize for s in x.strides)
    return np.ndarray(x.shape, narrow.dtype, narrow, offset, strides)


def check_placed(device: Any, op: str, arrays: list[Any], **params: Any) -> None:
    """An op computes equal results in views of larger tensors and in contiguous ones, and writes nothing else.

    Results with four axes, (batch, head, time, feature), are laid out by time first and go to one half of the features,
    except statistics, which only another kernel reads.
    """
    expected = run(device, op, arrays, **params)
    spread = [op != "attention" or i == 0 for i in range(len(expected))]
    refs = [upload(device, x) if isinstance(x, np.ndarray) else x for x in arrays]
    specs, bound = tuple(_spec(x) for x in refs), {**OPS[op].schema.params, **params}
    wholes, placed = [], []
    for array, by_time in zip(expected, spread, strict=True):
        b, h, t, d = array.shape if by_time and array.ndim == 4 else (1, 1, 1, 0)
        whole = device.empty(dtypes.as_dtype(array.dtype), (b, t, 2, h, d) if d else array.shape)
        device.backend.fill(77, whole)
        wholes.append(whole)
        placed.append(device.view(whole, array.shape, (t * 2 * h * d, d, 2 * h * d, 1), h * d) if d else whole)
    told = settings.among(OPS[op].settings, device.backend.capabilities.settings)
    launch = device.accepted(device.backend.lower(op, specs, tuple(p.spec for p in placed), {**bound, **told}))
    launch(*refs, *placed, *[device.backend.allocate(n) for n in launch.workspace])
    for whole, array, by_time in zip(wholes, expected, spread, strict=True):
        found = device.download(whole)
        if by_time and array.ndim == 4:
            assert (found[:, :, 0] == 77).all()
            found = found[:, :, 1].transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(found, array)


def logsumexp(x: np.ndarray) -> np.ndarray:
    """Return the logsumexp of rows as maximum and logarithm."""
    top = x.max(1, keepdims=True)
    return np.concatenate([top, np.log(np.exp(x - top).sum(1, keepdims=True))], 1)


def check_added_gradients(device: Any, rng: Any, shape: tuple[int, int], half: DType) -> None:
    """Check gradients of norms in float32 that read a gradient in half precision, add another, and are cast as well."""
    x, g, addend = (rng.uniform(-1, 1, shape) for _ in range(3))
    weight, g = rng.uniform(0.5, 1.5, shape[1]), g.astype(half.numpy)
    for op in ("layer_norm", "rms_norm"):
        _, *saved = OPS[op].reference(x.astype(np.float32).astype(np.float64), axes=1)
        operands = [g, x, weight, *(s.astype(np.float32) for s in saved)]
        check(device, f"{op}_grad", operands, ulps=64, axes=1)
        check(device, f"{op}_add_grad", [*operands, addend], ulps=64, axes=1, cast_dtype=half)
        check(device, f"{op}_add_grad", [*operands, addend], ulps=64, axes=1)
        check(device, f"{op}_add_grad", [*operands, None], ulps=64, axes=1, cast_dtype=half)


def check_cross_entropy(
    device: Any, rng: Any, rows: int, classes: int, smoothing: float, dtype: DType, index: type
) -> None:
    """Check the loss of rows and its gradient, with ignored targets and targets out of range on both sides."""
    x = rng.uniform(-20, 20, (rows, classes)).astype(dtype.numpy).astype(np.float64)
    target = rng.integers(0, classes, rows).astype(index)
    outside = [-100, classes, -1] if np.iinfo(index).min < 0 else [classes]
    target[::3] = np.resize(outside, len(target[::3]))
    params = {"ignore_index": -100, "label_smoothing": smoothing}
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    check(device, "cross_entropy_rows", [x, target], dtype, ulps=16, **params)
    lse, g = logsumexp(x).astype(statistic), rng.uniform(-1, 1, rows).astype(statistic)
    check(device, "cross_entropy_rows_grad", [g, x, target, lse], dtype, ulps=64, **params)


def check_joined_cross_entropy(device: Any, rng: Any, shape: tuple[int, int], dtype: DType, columns: int = 0) -> None:
    """Loss and gradient by one op have the bits of the two ops that it joins, with and without label smoothing."""
    rows, classes = shape
    x, target = rng.uniform(-9, 9, shape).astype(dtype.numpy), rng.integers(0, classes, rows)
    target[::3] = np.resize([-100, classes, -1], len(target[::3]))
    g = rng.uniform(-1, 1, rows).astype(np.float64 if dtype is dtypes.float64 else np.float32)
    for smoothing in (0.0, 0.1):
        params = {"ignore_index": -100, "label_smoothing": smoothing}
        losses, lse = run(device, "cross_entropy_rows", [x, target], **params)
        (slope,) = run(device, "cross_entropy_rows_grad", [g, x, target, lse], **params, columns=columns)
        joined = run(device, "cross_entropy_rows_and_grad", [x, target, g], **params, columns=columns)
        for got, wanted in zip(joined, (losses, slope), strict=True):
            np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))


def draw_attention(rng: Any, lead: tuple[int, ...], t: int, s: int, d: int, e: int) -> list[np.ndarray]:
    """Draw queries, keys and values: `t` queries and `s` keys of `d` features, values of `e` features."""
    return [rng.uniform(-2, 2, (*lead, t, d)), rng.uniform(-2, 2, (*lead, s, d)), rng.uniform(-1, 1, (*lead, s, e))]


def check_attention(device: Any, inputs: list[Any], dtype: DType = dtypes.float32, **params: Any) -> None:
    """Check attention and its gradient. The inputs are queries, keys, values and a mask or None."""
    check(device, "attention", inputs, dtype, ulps=32, **params)
    wide = [x if x is None or x.dtype == bool else x.astype(dtype.numpy).astype(np.float64) for x in inputs]
    out, lse = OPS["attention"].reference(*wide, **params)
    g = np.random.default_rng(3).uniform(-1, 1, out.shape)
    statistic = np.float64 if dtype is dtypes.float64 else np.float32
    saved = [out, np.asarray(lse).astype(statistic)]
    check(device, "attention_grad", [g, *inputs, *saved], dtype, ulps=64, **params)
