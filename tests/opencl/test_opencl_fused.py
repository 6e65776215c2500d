"""Fused groups: any layout of the inputs, any axes reduced, against the references of the ops in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_ops import check, lower, upload

from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.protocol import Declined

SCALED: tuple[GroupStep, ...] = (("multiply", (0, 1), ()), ("add", (3, 2), ()), ("tanh", (4,), ()))
LENGTHS = st.lists(st.sampled_from([1, 2, 3, 8, 17, 40]), min_size=1, max_size=3)


@st.composite
def groups(draw: Any) -> tuple[list[np.ndarray], tuple[str, tuple[int, ...], bool] | None]:
    """Draw three inputs that broadcast to a common shape, in any order of axes, with or without a reduction."""
    shape = draw(LENGTHS)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    arrays = []
    for i in range(3):
        own = [n if i == 0 or draw(st.booleans()) else 1 for n in shape]
        order = draw(st.permutations(range(len(shape))))
        dense = rng.uniform(-1, 1, [own[a] for a in order]).astype(np.float32)
        arrays.append(dense.transpose(np.argsort(order)))
    axes = tuple(a for a in range(len(shape)) if draw(st.booleans()))
    name = draw(st.sampled_from(["sum", "mean", "max", "min"]))
    return arrays, (name, axes, draw(st.booleans())) if axes else None


@given(case=groups())
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_layout_and_any_axes(device: Any, case: Any) -> None:
    arrays, reduction = case
    magnitude = 0.0
    if (
        reduction is not None and reduction[0] == "sum"
    ):  # terms may cancel: errors are relative to the sum of their sizes
        x, y, z = (a.astype(np.float64) for a in arrays)
        magnitude = np.abs(np.tanh(x * y + z)).sum(reduction[1]).max()
    check(
        device,
        "fused_elementwise",
        arrays,
        ulps=64,
        magnitude=magnitude,
        steps=SCALED,
        results=(5,),
        reduction=reduction,
    )


def test_long_reductions_are_split(device: Any, rng: Any) -> None:
    x = rng.uniform(-1, 1, (3, 20000))
    arrays = [x, rng.uniform(-1, 1, 20000), rng.uniform(-1, 1, ())]
    for axes in ((1,), (0, 1)):
        check(device, "fused_elementwise", arrays, ulps=512, steps=SCALED, results=(5,), reduction=("sum", axes, True))


def test_a_number_takes_part(device: Any, rng: Any) -> None:
    steps = (("multiply", (0, 1), ()), ("clip", (2, None, 1), ()), ("gelu", (3,), ("tanh",)))
    check(device, "fused_elementwise", [rng.uniform(-2, 2, (5, 30)), 0.75], ulps=64, steps=steps, results=(4,))


def test_groups_beyond_the_device_are_declined(device: Any) -> None:
    # Eight bytes for each pointer among the arguments.
    count = device.backend.runtime.device.max_parameter_size // 8
    steps = tuple(("add", (i and count + i - 1, i + 1), ()) for i in range(count - 1))
    refs = [upload(device, np.ones(3, np.float32)) for _ in range(count)]
    answer, _ = lower(device, "fused_elementwise", refs, {"steps": steps, "results": (2 * count - 2,)})
    assert isinstance(answer, Declined)
    assert f"{count + 1} tensors" in answer.reason
