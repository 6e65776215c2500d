"""Kernels of users in the conformance kit, by their samples, and in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Device
from polyhal.hal.errors import UnsupportedOpError
from polyhal.hal.ops.declare import Sample
from polyhal.hal.protocol import Feature
from polyhal.hal.testing import Scope, check, op_cases

ROWS = """__kernel void {name}(__global const T *x, __global T *out, uint out_size, uint x_last) {{
    size_t row = get_global_id(0);
    if (row >= out_size) return;
    T sum = 0;
    for (uint i = 0; i < x_last; i++) sum += {term};
    out[row] = sum;
}}"""
WGSL = """@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= parameters.out_size) {{ return; }}
    var sum = T(0);
    for (var i = 0u; i < parameters.x_last; i++) {{ sum += {term}; }}
    out[id.x] = sum;
}}"""


def row_sums(term: str, **options: Any) -> Any:
    """A kernel that sums rows, or something else if `term` is another one."""
    return polyhal.kernel(
        "row_sums",
        **{
            "opencl": ROWS.format(name="row_sums", term=term.replace("row", "get_global_id(0)")),
            "wgsl": WGSL.format(term=term.replace("row", "id.x")),
            "numpy": lambda x: x.sum(-1),
            "outputs": lambda x: (x.dtype, x.shape[:-1]),
            "gradient": lambda g, x_spec: polyhal.broadcast_to(polyhal.unsqueeze(g, -1), x_spec.shape),
            "samples": lambda rng: [(rng.uniform(1, 2, (3, 4)),), Sample((rng.uniform(1, 2, (2, 3, 5)),))],
            **options,
        },
    )


RIGHT = "x[row * {last} + i]"


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


def term(device: Device, last: str) -> str:
    prefix = "parameters." if device.info.backend == "wgpu" else ""
    return RIGHT.format(last=last.replace("x_", f"{prefix}x_"))


def test_a_right_kernel_passes(device: Device) -> None:
    kernel = row_sums(term(device, "x_last"))
    compiles = bool(device.features & Feature.USER_KERNELS)
    assert check(kernel, device) == (3 if compiles else 0)
    kinds = [c.kind for c in op_cases(device, kernel.op, Scope())]
    assert kinds == (["forward", "gradient", "second_order"] if compiles else [])


def test_a_wrong_kernel_fails_and_the_call_is_named(device: Device) -> None:
    if device.info.backend in ("numpy", "sim"):
        pytest.skip("the device runs the function that the kernel is compared with")
    with pytest.raises(AssertionError, match=r"row_sums\(float32\[3, 4\]\)"):
        check(row_sums(term(device, "(x_last - 1)")), device)


def test_a_wrong_gradient_fails() -> None:
    kernel = row_sums("", gradient=lambda g, x_spec: polyhal.zeros(x_spec.shape, device="numpy"))
    with pytest.raises(AssertionError, match="gradient"):
        check(kernel, "numpy")


def test_a_kernel_without_gradient_is_tested_forward() -> None:
    kernel = row_sums("", gradient=None)
    assert [c.id for c in op_cases(Device("numpy"), kernel.op, Scope())] == ["forward/row_sums/float32"]


def test_integers_are_tested_as_they_are_given(device: Device) -> None:
    """A kernel states the types that it takes."""
    if not device.features & Feature.USER_KERNELS:
        pytest.skip("compiles no kernels")
    numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
    kernel = row_sums(term(device, "x_last"), samples=[(numbers,), (numbers + 1,)], dtypes=(), gradient=None)
    assert check(kernel, device) == 1


def test_a_device_of_another_language_is_left_out(device: Device) -> None:
    kernel = polyhal.kernel(
        "other", sources={"msl": "kernel"}, outputs=lambda x: (x.dtype, x.shape), numpy=lambda x: x, samples=[([1.0],)]
    )
    is_numpy = device.info.backend in ("numpy", "sim") and bool(device.features & Feature.USER_KERNELS)
    assert check(kernel, device) == (1 if is_numpy else 0)


def test_samples_need_a_reference() -> None:
    with pytest.raises(ValueError, match="samples have nothing to be compared with; give a function as `numpy=`"):
        polyhal.kernel("lone", opencl="...", outputs=lambda x: (x.dtype, x.shape), samples=[([1.0],)])
    kernel = polyhal.kernel("lone", numpy=lambda x: x)
    with pytest.raises(ValueError, match="the op has no samples to check"):
        check(kernel, "numpy")


# --- batches --------------------------------------------------------------------------------------------------------


def test_vmap_calls_a_kernel_once_per_element_or_by_its_rule(device: Device) -> None:
    if not device.features & Feature.USER_KERNELS:
        pytest.skip("compiles no kernels")
    x = polyhal.tensor(np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32), device=device)
    calls = []

    def outputs(x: Any) -> Any:
        calls.append(x.shape)
        return x.dtype, x.shape[:-1]

    expected = x.numpy().sum(-1)
    for batching, shape in (None, (3, 5)), ("leading", (4, 3, 5)), (lambda call: call.apply(call.inputs[0]), (4, 3, 5)):
        kernel = row_sums(term(device, "x_last"), outputs=outputs, batching=batching)
        calls.clear()
        np.testing.assert_allclose(polyhal.vmap(kernel)(x).numpy(), expected, rtol=1e-5, atol=1e-6)
        assert set(calls) == {shape}


def test_operands_shared_by_a_batch_broadcast_for_pointwise_kernels() -> None:
    kernel = polyhal.kernel(
        "plus",
        numpy=lambda x, y: x + y,
        outputs=lambda x, y: (x.dtype, polyhal.broadcast_shapes(x.shape, y.shape)),
        batching="pointwise",
    )
    x, y = polyhal.ones((4, 3), device="numpy"), polyhal.arange(3, device="numpy")
    assert polyhal.vmap(kernel, in_dims=(0, None))(x, y).tolist() == [[1, 2, 3]] * 4


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="batching is 'rows'; expected 'leading' or 'pointwise', or a function"):
        row_sums("", batching="rows")


def test_errors_inside_vmap_name_the_kernel() -> None:
    kernel = polyhal.kernel("lone", opencl="...", outputs=lambda x: (x.dtype, x.shape))
    with pytest.raises(UnsupportedOpError, match="lone"):
        polyhal.vmap(kernel)(polyhal.ones((2, 3), device="numpy"))
