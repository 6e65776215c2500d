"""Tap planes, the layout of images in convolution on CPUs, against NumPy's reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polyhal.backends.common.problems.conv import Geometry, geometry
from polyhal.backends.common.problems.conv_planes import (
    Phase,
    TapPlanes,
    input_grad_planes,
    input_grad_planes_gapless,
    input_planes,
    output_grad_planes,
)
from polyhal.hal.ops import OPS
from polyhal.hal.ops.nn.window_shape import output_length

SLACK = 4


def _pairs(low: int, high: int) -> Any:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def _geometries(draw: Any) -> tuple[Geometry, dict[str, Any]]:
    """Draw convolutions of one image and channel."""
    size, kernel = draw(_pairs(1, 9)), draw(_pairs(1, 4))
    params = {"stride": draw(_pairs(1, 4)), "padding": draw(_pairs(0, 4)), "dilation": draw(_pairs(1, 4)), "groups": 1}
    axes = list(zip(size, kernel, params["stride"], params["padding"], params["dilation"], strict=True))
    assume(all(n + 2 * p >= (k - 1) * d + 1 for n, k, _, p, d in axes))
    result = tuple(output_length(*axis) for axis in axes)
    return geometry((1, 1, *size), (1, 1, *kernel), (1, 1, *result), params), params


def _packed(planes: TapPlanes, image: np.ndarray) -> np.ndarray:
    """Pack the planes of one channel in sequence, as pack_planes does."""
    pixels = np.zeros((len(planes.tops), len(planes.lefts), planes.length))
    for (i, top), (j, left) in itertools.product(enumerate(planes.tops), enumerate(planes.lefts)):
        for y, x in np.ndindex(planes.rows, planes.pitch):
            at = (y * planes.stride[0] + top, x * planes.stride[1] + left)
            if all(0 <= a < n for a, n in zip(at, planes.size, strict=True)):
                pixels[i, j, y * planes.pitch + x] = image[at[0], at[1]]
    return pixels.reshape(-1)


def _correlated(
    planes: TapPlanes, phases: Iterable[Phase], packed: np.ndarray, weight: np.ndarray, out: np.ndarray, step: Any
) -> None:
    for phase in phases:
        for y, x in np.ndindex(phase.down, phase.across):
            column = y * planes.pitch + x
            total = sum(weight[t] * packed[p + column] for t, p in zip(phase.taps, phase.places, strict=True))
            out[phase.first[0] + y * step[0], phase.first[1] + x * step[1]] = total


@settings(max_examples=60, deadline=None)
@given(_geometries(), st.booleans())
def test_taps_are_constant_offsets(case: tuple[Geometry, dict[str, Any]], gapless: bool) -> None:
    g, params = case
    rng = np.random.default_rng(3)
    image, weight, grad_out = (rng.integers(-9, 9, shape).astype(float) for shape in (g.size, g.kernel, g.result))
    planes, phase = input_planes(g, SLACK, gapless=gapless)
    packed = _packed(planes, image)
    out = np.full(g.result, np.nan)
    _correlated(planes, [phase], packed, weight, out, (1, 1))
    np.testing.assert_array_equal(out, OPS["conv2d"].reference(image[None, None], weight[None, None], **params)[0, 0])

    grads = output_grad_planes(g, planes.pitch, SLACK)
    columns = (g.result[0] - 1) * planes.pitch + g.result[1] + SLACK - 1
    packed_grads = _packed(grads, grad_out)[:columns]
    sums = {t: float(packed_grads @ packed[p : p + columns]) for t, p in zip(phase.taps, phase.places, strict=True)}
    grad = OPS["conv2d_weight_grad"].reference(grad_out[None, None], image[None, None], kernel=g.kernel, **params)[0, 0]
    assert sums == {t: grad[t] for t in phase.taps}


@settings(max_examples=60, deadline=None)
@given(_geometries(), st.booleans())
def test_each_phase_has_its_taps(case: tuple[Geometry, dict[str, Any]], gapless: bool) -> None:
    g, params = case
    rng = np.random.default_rng(4)
    weight, grad_out = (rng.integers(-9, 9, shape).astype(float) for shape in (g.kernel, g.result))
    planes, phases = (
        input_grad_planes_gapless(g, SLACK) if gapless and g.stride == (1, 1) else input_grad_planes(g, SLACK)
    )
    out = np.full(g.size, np.nan)
    _correlated(planes, phases, _packed(planes, grad_out), weight, out, g.stride)
    shape = (1, 1, *g.size)
    want = OPS["conv2d_input_grad"].reference(grad_out[None, None], weight[None, None], shape=shape, **params)
    np.testing.assert_array_equal(out, want[0, 0])
