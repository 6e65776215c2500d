"""Input gradients of convolutions with an infinite and a NaN element, which may only affect their windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_ops import run

from polyhal.hal.ops import OPS
from polyhal.hal.ops.nn.window_shape import output_length


def check_infinities(
    device: Any, rng: Any, x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any], dtype: Any
) -> None:
    """Compare with the reference outside the elements' windows, which the gradient of 1 at these elements locates."""
    axes = zip(x[2:], weight[2:], params["stride"], params["padding"], params["dilation"], strict=True)
    result = (x[0], weight[0], *(output_length(*a) for a in axes))
    slope, kernel = rng.uniform(-1, 1, result), rng.uniform(0.5, 1, weight)
    reference = OPS["conv2d_input_grad"].reference
    special = {(0, 0, result[2] // 2, result[3] // 2): np.inf, (-1, -1, -1, -1): np.nan}
    for at in special:
        slope[at] = 0
    expected = reference(slope, kernel, shape=x, **params)
    for at, value in special.items():
        one = np.zeros(result)
        one[at], slope[at] = 1, value
        expected[reference(one, np.ones(weight), shape=x, **params) > 0] = value
    (got,) = run(device, "conv2d_input_grad", [slope.astype(dtype), kernel.astype(dtype)], shape=x, **params)
    tolerance = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
