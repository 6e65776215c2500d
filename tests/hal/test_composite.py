"""Running traced graphs: temporaries, views between ops, and results that replace inputs."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.testing.kit.core_only import core_only


@pytest.fixture
def reduced(device: Device) -> Device:
    """Open the device under test with only the required members, where nearly every op is a composite."""
    return core_only(device)


@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "softplus", "expm1", "erf"])
def test_in_place_equals_out_of_place(name: str, reduced: Device) -> None:
    values = np.linspace(-2, 2, 9).astype(np.float32)
    op, params = OPS[name], tuple(OPS[name].schema.params.values())
    x = Tensor(values, device=reduced)
    fresh = dispatch.apply(op, (x,), params)
    dispatch.apply_into(op, (x,), params, (x,))
    np.testing.assert_array_equal(x.numpy(), fresh.numpy())


def test_binary_in_place_over_either_input(reduced: Device) -> None:
    a, b = np.array([5.0, -7.0, 9.0], np.float32), np.array([3.0, 2.0, -4.0], np.float32)
    for place in (0, 1):
        inputs = (Tensor(a, device=reduced), Tensor(b, device=reduced))
        dispatch.apply_into(OPS["remainder"], inputs, (), (inputs[place],))
        np.testing.assert_array_equal(inputs[place].numpy(), np.remainder(a, b))


def test_the_same_tensor_twice_in_place(reduced: Device) -> None:
    x = Tensor([3.0, -2.0], device=reduced)
    dispatch.apply_into(OPS["minimum"], (x, x), (), (x,))
    assert x.tolist() == [3.0, -2.0]


def test_optimizer_steps_replace_parameters_and_state(reduced: Device) -> None:
    values = [np.random.default_rng(i).uniform(0.1, 1, (3, 2)).astype(np.float32) for i in range(4)]
    p, g, m, v = (Tensor(a, device=reduced) for a in values)
    numbers = (1, 0.1, 0.9, 0.99, 1e-8, 0.01)
    op, flags = OPS["adam_step"], {"count": 1, "decoupled": True, "amsgrad": False, "counted": False}
    expected = op.reference(*[a.astype(np.float64) for a in values], *numbers, **flags)
    dispatch.apply_into(op, (p, g, m, v, *numbers), tuple(flags.values()), (p, m, v))
    for got, wanted in zip((p, m, v), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5)
    np.testing.assert_array_equal(g.numpy(), values[1])


def test_an_unaligned_output_is_read_through_a_view(device: Device) -> None:
    """The weight's gradient is a product with the transpose of the output `d_x`, whose view is also unaligned."""
    op, rng = OPS["lstm_grad"], np.random.default_rng(0)
    shapes = [(3, 2, 4), (3, 2, 4), (3, 2, 16), (16, 4), (2, 4), (2, 4), (3, 2, 4), (3, 2, 4)]
    values = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    inputs = (*(Tensor(v, device=device) for v in values), None, None, None)
    expected = dispatch.apply(op, inputs, (False,))
    outs = tuple(polyhal.full(x.numel() + 17, np.nan, device=device)[17:].view(x.shape) for x in expected[:4])
    dispatch.apply_into(op, inputs, (False,), (*outs, expected[4]))
    for got, wanted in zip(outs, expected[:4], strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_temporaries_return_to_the_pool_after_their_last_use(reduced: Device) -> None:
    x = polyhal.ones((64, 64), device=reduced)
    x.gelu()
    reduced.pool.reset_peak()
    before = reduced.memory_stats().used
    x.gelu()
    assert reduced.memory_stats().used == before
    # About sixty ops each allocate a result of the size of x; results are freed after their last consumer.
    assert reduced.memory_stats().peak - before < 16 * x.nbytes


def test_a_traced_graph_reads_as_text() -> None:
    graph = trace(lambda a, b: (a + b) * 2.0, [contiguous(float32, (2, 3)), contiguous(float32, (3,))], {})
    assert str(graph).splitlines() == [
        "%0: float32[2, 3]",
        "%1: float32[3]",
        "%2 = add(%0, %1): float32[2, 3]",
        "%3 = multiply(%2, 2.0): float32[2, 3]",
        "return %3",
    ]


def test_views_inside_a_graph_point_into_their_source(reduced: Device) -> None:
    """A decomposition that slices, transposes and concatenates agrees with NumPy."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    index = np.array([[0, 5, 2], [1, 1, 1], [4, 3, 2], [0, 0, 5]])
    out = polyhal.take_along_axis(Tensor(x, device=reduced), Tensor(index, device=reduced), 1)
    np.testing.assert_array_equal(out.numpy(), np.take_along_axis(x, index, 1))


def test_ops_that_differ_only_in_their_operands_are_resolved_once(reduced: Device) -> None:
    x = contiguous(float32, (3,))
    used = reduced.planner.record = []
    resolution = reduced.planner.resolution(OPS["expm1"], (x,), (x,), {})
    reduced.planner.record = None
    distinct = {(r.op, r.specs) for r in resolution}
    assert len(list(resolution)) > len(used) >= len(distinct)
