"""Recurrent layers as GPUs run them, a group per sequence or two, on whatever device there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_ops import check

from polyhal.hal.ops import OPS


@pytest.fixture
def gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The device, taken for a GPU of four compute units."""
    runtime = device.backend.runtime
    most = min(runtime.features.max_group_size, 64)
    found = replace(runtime.features, cpu=False, group_size=most, max_group_size=most, vector_width=4, compute_units=4)
    monkeypatch.setattr(runtime, "features", found)
    return device


# Units in one slice, in several, and in several rounds; sequences alone and in pairs, one of which is single.
@pytest.mark.parametrize(("batch", "size"), [(3, 20), (7, 9), (2, 70)], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_all_steps_in_one_launch(gpu: Any, rng: Any, batch: int, size: int, reverse: bool) -> None:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    steps, floor = 3, {"magnitude": 4.0, "ulps": 64}
    states = draw(batch, size), draw(batch, size)
    weight = draw(4 * size, size) / size
    check(gpu, "lstm", [draw(steps, batch, 4 * size), weight, *states, None, None], **floor, reverse=reverse)
    cells = draw(steps, batch, size)
    grads = draw(steps, batch, size), draw(steps, batch, size)
    check(
        gpu,
        "lstm_steps_grad",
        [*grads, draw(steps, batch, 4 * size), weight, states[0], cells],
        **floor,
        reverse=reverse,
    )
    weight, bias, x = draw(3 * size, size) / size, draw(3 * size), draw(steps, batch, 3 * size)
    for some in (bias, None):
        check(gpu, "gru", [x, weight, states[0], some, None], **floor, reverse=reverse)
    outs = OPS["gru"].reference(x, weight, states[0], bias, reverse=reverse)
    fed_back = draw(steps, batch, 3 * size)
    check(gpu, "gru_steps_grad", [grads[0], x, fed_back, weight, states[0], outs], **floor, reverse=reverse)


def test_sums_of_bags_on_a_gpu(gpu: Any, rng: Any) -> None:
    index = rng.integers(0, 9, 40)
    for width in (64, 30, 7):
        weight = rng.uniform(-1, 1, (9, width))
        starts = np.array([0, 0, 5, 33, 40])
        check(gpu, "sum_bags", [weight, index, starts, None], magnitude=40.0, length=0, open_end=True)
        check(gpu, "sum_bags", [weight, index, None, rng.uniform(-1, 1, 40)], magnitude=40.0, length=8, open_end=False)
