"""Samples and erroneous calls of convolution and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.ops.declare import ErrorSample, Sample
from polyhal.hal.ops.nn.window_shape import convolution_shape

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5, 6), (4, 3, 3, 3), {"padding": (1, 1)}),
    ((1, 2, 7, 6), (3, 2, 3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "stride": (2, 2), "padding": (1, 1)}),
    ((1, 3, 8, 9), (3, 1, 3, 3), {"groups": 3, "dilation": (2, 3), "padding": (2, 2)}),
    ((2, 5, 4, 4), (7, 5, 1, 1), {}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((2, 17, 9, 9), (33, 17, 3, 3), {"padding": (1, 1)}),
]
_DEFAULTS: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def samples(rng: np.random.Generator) -> list[Sample]:
    """Return samples of a convolution."""
    out = []
    for i, (x, w, params) in enumerate(_CASES):
        bias = rng.uniform(-1, 1, w[0]) if i % 2 == 0 else None
        out.append(Sample((rng.uniform(-1, 1, x), rng.uniform(-1, 1, w), bias), {**_DEFAULTS, **params}))
    return out


def _gradient_of(rng: np.random.Generator, x: tuple[int, ...], w: tuple[int, ...], params: Params) -> Any:
    return rng.uniform(-1, 1, convolution_shape(x, w, {**_DEFAULTS, **params}))


def input_grad_samples(rng: np.random.Generator) -> list[Sample]:
    """Return samples of the gradient of the input."""
    return [
        Sample((_gradient_of(rng, x, w, p), rng.uniform(-1, 1, w)), {"shape": x, **_DEFAULTS, **p})
        for x, w, p in _CASES
    ]


def weight_grad_samples(rng: np.random.Generator) -> list[Sample]:
    """Return samples of the gradient of the weight."""
    return [
        *(
            Sample((_gradient_of(rng, x, w, p), rng.uniform(-1, 1, x)), {"kernel": w[2:], **_DEFAULTS, **p})
            for x, w, p in _CASES
        ),
        *(_wide_sample(rng, dtype) for dtype in (dtypes.float16, dtypes.bfloat16)),
    ]


def _wide_sample(rng: np.random.Generator, dtype: DType) -> Sample:
    """Return a sample of halves whose result is wider."""
    x, w, params = _CASES[0]
    operands = (_gradient_of(rng, x, w, params).astype(dtype.numpy), rng.uniform(-1, 1, x).astype(dtype.numpy))
    bound = {"kernel": w[2:], **_DEFAULTS, **params, "out_dtype": dtypes.float32}
    return Sample(operands, bound, differentiable=False)


ERRORS = [
    ErrorSample(
        (np.zeros((1, 2, 4, 4)), np.zeros((3, 3, 2, 2)), None), dict(_DEFAULTS), ValueError, "does not fit weight"
    ),
    ErrorSample(
        (np.zeros((1, 2, 2, 2)), np.zeros((3, 2, 3, 3)), None),
        dict(_DEFAULTS),
        ValueError,
        "does not fit in an axis",
    ),
    ErrorSample(
        (np.ones((1, 1, 3, 3), np.int32), np.ones((1, 1, 2, 2), np.int32), None),
        dict(_DEFAULTS),
        UnsupportedDTypeError,
        "got int32; expected floats",
    ),
]
