"""Launches of the CUDA backend: packing of arguments, tables, memory at an offset, and launches that the driver refuses."""

from __future__ import annotations

import gc
import math
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from emulated_backend import Emulation

from polyhal.backends.common.cuda_driver import NULL
from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, Struct
from polyhal.backends.common.launching.kernel_signature import KernelSignatures
from polyhal.backends.common.launching.launch import LocalMemory, ScalarType, Table, Tensor, Workspace
from polyhal.backends.cuda.launch import CudaLaunch
from polyhal.hal import dtypes
from polyhal.hal.errors import BackendError, KernelBuildError, NumberRangeError
from polyhal.hal.layout import Ref, contiguous

_SCALARS = """
__kernel void scalars(__global double *out, ulong out_offset, int a, uint b, float c, long d, double e, ulong f) {
    out += out_offset;
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f;
}
"""
_STRUCTS = """
typedef struct { ulong n; int few[3]; float last; } Even;
typedef struct { double x; int n; } Padded;
__kernel void structs(__global double *out, ulong out_offset, Even a, int between, Padded b, float last) {
    out[0] = a.n; out[1] = a.few[0]; out[2] = a.few[2]; out[3] = a.last;
    out[4] = between; out[5] = b.x; out[6] = b.n; out[7] = last;
}
"""
_LONGS = """
__kernel void longs(__global long *out, ulong out_offset, long value) { out[out_offset] = value; }
"""
_FLOATS = """
__kernel void floats(__global float *out, ulong out_offset, float value) { out[out_offset] = value; }
"""
_GATHER = """
__kernel void gather(__global float *out, ulong out_offset, __global const int *table, __global float *scratch) {
    size_t i = get_global_id(0);
    scratch[i] = table[i];
    out[out_offset + i] = scratch[i] * 2;
}
"""
_GRID = """
__kernel void grid(__global int *out, ulong out_offset, int width) {
    size_t at = get_global_id(1) * width + get_global_id(0);
    out[out_offset + at] = get_group_id(0) + 10 * get_group_id(1) + 100 * get_local_id(0) + 1000 * get_local_size(1)
        + 10000 * get_num_groups(0);
}
"""


def launch_of(
    emulation: Emulation,
    text: str,
    parameters: Sequence[Bound],
    items: tuple[int, ...] = (1,),
    group: tuple[int, ...] = (1,),
) -> CudaLaunch:
    """Return a launch of the kernel that is named by the text's first `void`."""
    name = text.split("void ")[1].split("(")[0]
    runtime = emulation.backend.runtime
    return CudaLaunch(runtime, runtime.programs.build(f"{name}.cl", text).kernel(name), parameters, items, group)


def test_a_kernel_that_awaits_its_inputs_starts_early_in_a_stream_unless_it_reads_some_before(
    emulation: Emulation,
) -> None:
    runtime = emulation.backend.runtime
    kernel = runtime.programs.build("longs.cl", _LONGS).kernel("longs")
    out = emulation.harness.upload(np.zeros(2, np.int64))
    for dependent, early, expected in ((True, False, [(6, 1)]), (True, True, []), (False, False, [])):
        kernel.dependent = dependent
        launch = CudaLaunch(runtime, kernel, [Tensor(0, early=early), Constant(7, "long")], (1,), (1,))
        launch(out)
        config = launch.bound([out], {}).prepared.config
        attributes = [config.attributes[i] for i in range(config.attribute_count)]
        assert [(a.id, a.value.flag) for a in attributes] == expected  # programmatic stream serialization
    assert emulation.harness.download(out).tolist() == [7, 0]


def test_scalars_of_all_types_arrive(emulation: Emulation) -> None:
    out = emulation.harness.empty(dtypes.float64, (6,))
    fixed: list[Bound] = [Tensor(0), Constant(-3, "int"), Constant(2**32 - 1, "uint"), Constant(0.1, "float")]
    launch_of(
        emulation, _SCALARS, [*fixed, Constant(-(2**40), "long"), Constant(0.1, "double"), Constant(2**63, "ulong")]
    )(out)
    wanted = [-3, 2**32 - 1, np.float32(0.1), -(2**40), 0.1, 2**63]
    np.testing.assert_array_equal(emulation.harness.download(out), wanted)
    numbers: list[Bound] = [Number(i + 1, t) for i, t in enumerate(("int", "uint", "float", "long", "double", "ulong"))]
    changing = launch_of(emulation, _SCALARS, [Tensor(0), *numbers])
    for values in ((1, 2, 0.5, 4, 5.5, 6), (-1, 2**31, -0.25, -(2**62), 1e300, 2**64 - 1)):
        changing(out, *values)
        np.testing.assert_array_equal(emulation.harness.download(out), np.array(values, np.float64))


def test_structs_are_passed_with_their_padding(emulation: Emulation) -> None:
    even = struct.pack("<Q3if", 7, 1, 2, 3, 0.5)
    padded = struct.pack("<di4x", 2.5, -9)
    out = emulation.harness.empty(dtypes.float64, (8,))
    values: list[Bound] = [Tensor(0), Struct(even), Constant(11, "int"), Struct(padded), Constant(0.75, "float")]
    launch_of(emulation, _STRUCTS, values)(out)
    np.testing.assert_array_equal(emulation.harness.download(out), [7, 1, 3, 0.5, 11, 2.5, -9, 0.75])


@pytest.mark.parametrize(("given", "stored"), [(2**63, -(2**63)), (2**64 - 1, -1), (-(2**63), -(2**63)), (True, 1)])
def test_integers_of_64_bits_wrap(emulation: Emulation, given: int, stored: int) -> None:
    out = emulation.harness.empty(dtypes.int64, (1,))
    launch_of(emulation, _LONGS, [Tensor(0), Number(1, "long")])(out, given)
    assert emulation.harness.download(out)[0] == stored


@pytest.mark.parametrize("given", [2**64, -(2**63) - 1])
def test_larger_integers_are_refused(emulation: Emulation, given: int) -> None:
    out = emulation.harness.empty(dtypes.int64, (1,))
    launch = launch_of(emulation, _LONGS, [Tensor(0), Number(1, "long")])
    with pytest.raises(NumberRangeError, match="expected 64 bits"):
        launch(out, given)


@pytest.mark.parametrize(("kind", "given"), [("int", 2**31), ("int", -(2**31) - 1), ("uint", -1), ("ulong", 2**64)])
def test_integers_beyond_a_smaller_type_are_refused(emulation: Emulation, kind: str, given: int) -> None:
    text = f"__kernel void fits(__global long *out, ulong out_offset, {kind} value) {{ out[out_offset] = value; }}"
    out = emulation.harness.empty(dtypes.int64, (1,))
    launch = launch_of(emulation, text, [Tensor(0), Number(1, cast(ScalarType, kind))])
    with pytest.raises(
        NumberRangeError, match=rf"{given} does not fit the type {kind}; expected -?\d+ to \d+; declare"
    ):
        launch(out, given)


@pytest.mark.parametrize("given", [1e300, -1e39, math.inf, -math.inf, math.nan, 3.4028235677973366e38, 2**127, 1e-60])
def test_floats_round_as_in_c_and_overflow_to_infinity(emulation: Emulation, given: float) -> None:
    out = emulation.harness.empty(dtypes.float32, (1,))
    with np.errstate(over="ignore"):
        wanted = np.float32(given)
    launch_of(emulation, _FLOATS, [Tensor(0), Number(1, "float")])(out, given)
    np.testing.assert_array_equal(emulation.harness.download(out)[0], wanted)
    launch_of(emulation, _FLOATS, [Tensor(0), Constant(given, "float")])(out)
    np.testing.assert_array_equal(emulation.harness.download(out)[0], wanted)


def test_tables_workspace_and_offsets(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    whole, scratch = harness.upload(np.zeros(20, np.float32)), backend.allocate(16)
    part = harness.view(whole, (12,), (1,), 3)
    bound: list[Bound] = [Tensor(0, 4), Table((9, 8, 7, 6)), Workspace(1)]
    launch_of(emulation, _GATHER, bound, (4,), (2,))(part, scratch)
    wanted = np.zeros(20)
    wanted[7:11] = [18, 16, 14, 12]
    np.testing.assert_array_equal(harness.download(whole), wanted)


def test_tables_of_other_types_and_without_elements(emulation: Emulation) -> None:
    text = """
    __kernel void halves(__global double *out, ulong out_offset, __global const double *table, __global const int *none) {
        out[out_offset] = table[1] / 2;
    }"""
    out = emulation.harness.empty(dtypes.float64, (1,))
    table = Table(np.array([7.0, 9.0]).tobytes())
    launch_of(emulation, text, [Tensor(0), table, Table(())])(out)
    assert emulation.harness.download(out)[0] == 4.5


def test_a_table_outlives_its_launch_until_all_streams_have_used_it(emulation: Emulation) -> None:
    backend, harness = emulation.backend, emulation.harness
    out, scratch = harness.upload(np.zeros(4, np.float32)), backend.allocate(16)
    backend.synchronize()
    launch = launch_of(emulation, _GATHER, [Tensor(0), Table((9, 8, 7, 6)), Workspace(1)], (4,), (2,))
    backend.switch_stream(backend.open_stream())
    launch(out, scratch)
    backend.switch_stream(None)
    del launch
    gc.collect()
    backend.copy_from_device(scratch, 0, memoryview(bytearray(16)))  # the device's own stream runs
    backend.synchronize()
    np.testing.assert_array_equal(harness.download(out), [18, 16, 14, 12])


def test_blocks_and_threads_of_two_axes(emulation: Emulation) -> None:
    out = emulation.harness.empty(dtypes.int32, (4, 6))
    launch_of(emulation, _GRID, [Tensor(0), Constant(6, "int")], (6, 4), (3, 2))(out)
    y, x = np.mgrid[:4, :6]
    np.testing.assert_array_equal(emulation.harness.download(out), x // 3 + 10 * (y // 2) + 100 * (x % 3) + 22000)


@pytest.mark.parametrize("grid", [(2, 1, 65535), (2, 1, 65536), (1, 65536, 2)])
def test_grids_beyond_the_limits_of_the_driver_are_folded(emulation: Emulation, grid: tuple[int, int, int]) -> None:
    """The driver accepts 65,535 blocks on the second and third axis, and OpenCL any number; also as a node of a graph."""
    text = """__kernel void counts(__global int *out, ulong out_offset, int add) {
        size_t at = (get_group_id(2) * get_num_groups(1) + get_group_id(1)) * get_num_groups(0) + get_group_id(0);
        out[out_offset + at] += get_group_id(2) + add;
    }"""
    parameters: list[Bound] = [Tensor(0), Constant(7, "int")]
    signature = KernelSignatures(lambda file: text).of("counts.cl", "counts", {})
    launch = emulation.backend.runtime.build_user_kernel("counts", "counts.cl", text, [], signature)(
        parameters, grid, (1, 1, 1)
    )
    out = emulation.harness.upload(np.zeros(math.prod(grid), np.int32))
    launch(out)
    emulation.backend.record([lambda: launch(out)]).submit([])
    expected = 2 * (np.arange(math.prod(grid)) // (grid[0] * grid[1]) + 7)
    np.testing.assert_array_equal(emulation.harness.download(out), expected)


def test_operations_with_many_planes_on_the_third_axis(emulation: Emulation) -> None:
    x, weights = np.arange(2 * 65537.0, dtype=np.float32).reshape(65537, 2, 1), np.float32([[2], [3], [4]])
    starts, shape = np.array([0, 1, 0], np.int32), (65537, 3, 1)
    inputs = [emulation.harness.upload(array) for array in (x, starts, weights)]
    found = emulation.harness.run("banded_matmul", inputs, dtypes.float32, shape, axis=1)
    np.testing.assert_array_equal(found, x[:, starts] * weights)


def test_kernels_with_more_shared_memory_than_they_may_declare(emulation: Emulation) -> None:
    """Such arrays become dynamic shared memory, which each launch requests, also as a node of a graph."""
    text = """
    __kernel void turned(__global float *x, ulong x_offset) {
        __local float first[10000], second[8000];
        size_t i = get_local_id(0);
        first[i * 1000] = x[x_offset + i]; second[i * 1000] = 100;
        barrier(CLK_LOCAL_MEM_FENCE);
        x[x_offset + i] = first[7000 - i * 1000] + second[i * 1000];
    }"""
    x = emulation.harness.upload(np.arange(8, dtype=np.float32))
    launch = launch_of(emulation, text, [Tensor(0)], (8,), (8,))
    launch(x)
    np.testing.assert_array_equal(emulation.harness.download(x), 100 + np.arange(8)[::-1])
    emulation.backend.record([lambda: launch(x)]).submit([])
    np.testing.assert_array_equal(emulation.harness.download(x), 200 + np.arange(8))


def test_shared_memory_beyond_the_device_is_an_error(emulation: Emulation) -> None:
    body = "__local float t[25000]; t[get_global_id(0)] = x[0]; barrier(CLK_LOCAL_MEM_FENCE); x[0] = t[(int)x[1]];"
    text = f"__kernel void large(__global float *x) {{ {body} }}"
    with pytest.raises(
        BackendError, match=r"large.* declares 100000 bytes of local memory; expected at most 98304; make"
    ):
        launch_of(emulation, text, [Workspace(0)])


def test_a_kernel_with_local_parameters_is_refused_with_the_remedy(emulation: Emulation) -> None:
    text = "__kernel void sums(__global float *x, ulong x_offset, __local float *part) { part[0] = x[0]; }"
    with pytest.raises(KernelBuildError, match="x"):
        launch_of(emulation, text, [Tensor(0), LocalMemory(64)])


def test_blocks_beyond_the_kernels_limit_are_refused(emulation: Emulation) -> None:
    with pytest.raises(
        KernelBuildError, match=r"compiled the kernel for groups of at most 1024.* this launch has 2048"
    ):
        launch_of(emulation, _FLOATS, [Tensor(0), Constant(1, "float")], (2048,), (2048,))


def test_a_launch_that_the_driver_refuses_names_its_blocks(emulation: Emulation) -> None:
    out = emulation.harness.empty(dtypes.float32, (1,))
    launch = launch_of(emulation, _FLOATS, [Tensor(0), Constant(1, "float")])
    emulation.library.refused["cuLaunchKernelEx"] = 701
    with pytest.raises(
        BackendError, match=r"launching floats over \(1, 1, 1\) blocks of \(1, 1, 1\) threads.*too large"
    ):
        launch(out)
    with pytest.raises(BackendError, match="CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        launch(out)
    emulation.library.refused.clear()
    launch(out)
    assert emulation.harness.download(out)[0] == 1


def test_threads_share_a_launch(emulation: Emulation) -> None:
    """Its argument block is written for each call."""
    launch = launch_of(emulation, _FLOATS, [Tensor(0), Number(1, "float")])
    out = emulation.harness.empty(dtypes.float32, (200,))
    one = contiguous(dtypes.float32, (1,))

    def store(i: int) -> None:
        launch(Ref(out.handle, one, i), float(i))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, range(200)))
    np.testing.assert_array_equal(emulation.harness.download(out), np.arange(200))


def test_launches_leave_the_first_device_current_where_none_was(emulate: Any) -> None:
    """The CUDA runtime would choose that device too. Another current context stays."""
    emulation: Emulation = emulate(2)
    contexts = [backend.runtime.context for backend in emulation.backends]
    launches = [
        partial(backend.fill, 1.0, Ref(backend.allocate(256), contiguous(dtypes.float32, (4,))))
        for backend in emulation.backends
    ]

    def current_after(device: int) -> Any:
        launches[device]()
        return emulation.driver.value("cuCtxGetCurrent", "CUcontext *")

    def found() -> list[Any]:
        seen = [current_after(1), current_after(0), current_after(1)]
        with contexts[1]:
            return [*seen, current_after(0)]

    with ThreadPoolExecutor(1) as thread:  # which has no current context yet
        assert thread.submit(found).result() == [NULL, contexts[0].handle, contexts[0].handle, contexts[1].handle]
        with emulation.library.logged() as calls:
            thread.submit(launches[0]).result()
    assert calls == ["cuLaunchKernelEx"]


def test_a_kernel_that_writes_beyond_its_memory_is_noticed(emulation: Emulation) -> None:
    """By the emulation: a card may not notice."""
    out = emulation.harness.empty(dtypes.float32, (4,))
    launch_of(emulation, _FLOATS, [Tensor(0, 5), Constant(1, "float")])(out)
    emulation.backend.synchronize()
    emulation.expected_violations = ["a kernel wrote at byte 20 of an allocation of 16"]


def test_memory_of_a_released_allocation_is_an_error_of_the_device(emulation: Emulation) -> None:
    """The emulation notices what a card would only notice if the address were unmapped."""
    backend = emulation.backend
    out = emulation.harness.empty(dtypes.float32, (1,))
    launch = launch_of(emulation, _FLOATS, [Tensor(0), Constant(1, "float")])
    backend.deallocate(out.handle)
    launch(out)
    with pytest.raises(BackendError, match="accessed memory out of bounds"):
        backend.synchronize()
    emulation.expected_violations = list(emulation.library.violations)
    (text,) = emulation.expected_violations
    assert "floats accesses 1 bytes" in text
