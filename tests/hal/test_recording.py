"""Recording of work on arrays without Polyhal tensors, which any owner of arrays may do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyhal.hal.compile.recording import Recording
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import EAGER, Array
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import CaptureError
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops import FUNCTIONS, OPS


def array(device: Device, *values: Any) -> Array:
    return Array(device, *device.upload(np.array(values, dtype=np.float32), float32))


def view(x: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Array:
    spec = contiguous(float32, shape)._replace(strides=strides)
    out = Array(x.device, x.buffer, Ref(x.ref.handle, spec, x.ref.offset + offset))
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.track(out, x)
    return out


def test_a_run_accepts_other_arguments(numpy_device: Device) -> None:
    x = array(numpy_device, 1, 2)
    with Recording() as recording:
        assert recording.argument(x) == 0
        y = FUNCTIONS["multiply"](x, 3.0)
        recording.results([y])
        del y
    program = recording.program()
    for values in ([4, 5], [6, 7]):
        (result,) = program.run([array(numpy_device, *values)])
        np.testing.assert_array_equal(EAGER.read(result), 3 * np.array(values))


def test_an_argument_may_have_no_memory(numpy_device: Device) -> None:
    recording = Recording()
    x = recording.placeholder(numpy_device, contiguous(float32, (2,)))
    with recording:
        recording.results([FUNCTIONS["add"](x, x)])
    (result,) = recording.program().run([array(numpy_device, 1, 2)])
    np.testing.assert_array_equal(EAGER.read(result), [2, 4])


def test_arrays_that_stay_are_found_by_their_memory_and_written_at_each_run(numpy_device: Device) -> None:
    total = array(numpy_device, 0, 0)
    with Recording() as recording:
        x = recording.placeholder(numpy_device, contiguous(float32, (2,)))
        dispatch.apply_into(OPS["add"], (total, x), (), (total,))
    np.testing.assert_array_equal(EAGER.read(total), [0, 0])
    program = recording.program()
    for _ in range(3):
        program.run([array(numpy_device, 1, 2)])
    np.testing.assert_array_equal(EAGER.read(total), [3, 6])


def test_a_view_that_is_used_first_does_not_hide_the_whole(numpy_device: Device) -> None:
    weight = array(numpy_device, [1, 2, 3], [4, 5, 6])
    with Recording() as recording:
        x = recording.placeholder(numpy_device, contiguous(float32, (2, 3)))
        y = FUNCTIONS["matmul"](x, view(weight, (3, 2), (1, 3)))
        dispatch.thread.executor.overwrite(view(weight, (2, 3), (3, 1)), 1.0)
        recording.results([y, view(weight, (2,), (3,), 1)])
        del y
    x = array(numpy_device, [1, 0, 0], [0, 0, 1])
    y, column = recording.program().run([x])
    np.testing.assert_array_equal(EAGER.read(y), [[1, 4], [3, 6]])
    np.testing.assert_array_equal(EAGER.read(column), [1, 1])
    np.testing.assert_array_equal(EAGER.read(weight), np.ones((2, 3)))


def test_kept_arrays_of_a_recording_are_updated_by_its_runs(numpy_device: Device) -> None:
    with Recording() as recording:
        x = recording.placeholder(numpy_device, contiguous(float32, (2,)))
        kept = FUNCTIONS["negative"](x)
    program = recording.program()
    for values in ([1, 2], [3, 4]):
        program.run([array(numpy_device, *values)])
        np.testing.assert_array_equal(EAGER.read(kept), -np.array(values))


def test_a_later_recording_receives_the_values_that_it_reads(numpy_device: Device) -> None:
    first = Recording()
    x = first.placeholder(numpy_device, contiguous(float32, (2,)))
    with first:
        y = FUNCTIONS["exp"](x)
        first.results([y])
    second = Recording(first)
    with second:
        second.results([FUNCTIONS["multiply"](y, x)])
    first.pass_on(p for p in second.forwarded if isinstance(p, int))
    del y
    inputs = array(numpy_device, 0, 1)
    forward, backward = first.program(), second.program()
    made = iter(forward.run([inputs])[1:])
    passed = [next(made) if isinstance(p, int) else inputs for p in second.forwarded]
    (result,) = backward.run(passed)
    np.testing.assert_allclose(EAGER.read(result), [0, np.e], rtol=1e-6)


def test_an_error_abandons_the_recording(numpy_device: Device) -> None:
    total = array(numpy_device, 1)
    version = total.buffer.version

    def count_and_read() -> None:
        with Recording():
            dispatch.apply_into(OPS["add"], (total, 1.0), (), (total,))
            dispatch.thread.executor.read(total)

    with pytest.raises(CaptureError, match="is read while it is only being recorded"):
        count_and_read()
    assert total.buffer.version == version


def test_arrays_are_assigned_all_at_once(numpy_device: Device) -> None:
    recording = Recording()
    x, y = (recording.placeholder(numpy_device, contiguous(float32, (2,))) for _ in range(2))
    with recording:
        recording.assign([(x, view(y, (2,), (1,))), (y, FUNCTIONS["negative"](x))])
    program = recording.program()
    a, b = array(numpy_device, 1, 2), array(numpy_device, 3, 4)
    program.run([a, b])
    np.testing.assert_array_equal(EAGER.read(a), [3, 4])
    np.testing.assert_array_equal(EAGER.read(b), [-1, -2])


def test_an_argument_with_strides_is_assigned(numpy_device: Device) -> None:
    turned = contiguous(float32, (2, 2))._replace(strides=(1, 2))
    recording = Recording()
    x = recording.placeholder(numpy_device, turned)
    with recording:
        recording.assign([(x, FUNCTIONS["multiply"](x, 10.0))])
    base = array(numpy_device, [1, 2], [3, 4])
    recording.program().run([view(base, (2, 2), (1, 2))])
    np.testing.assert_array_equal(EAGER.read(base), [[10, 20], [30, 40]])


def test_results_share_memory_only_where_the_recorded_arrays_did(numpy_device: Device) -> None:
    recording = Recording()
    x = recording.placeholder(numpy_device, contiguous(float32, (2,)))
    with recording:
        y = FUNCTIONS["add"](x, 1.0)
        equal = FUNCTIONS["multiply"](y, 1.0)  # a graph pass replaces it by `y`
        recording.results([y, y, equal, view(equal, (1,), (1,), 1), x, view(x, (1,), (1,), 1)])
        del y, equal
    program = recording.program()
    for _ in range(2):
        given = array(numpy_device, 5, 6)
        results = program.run([given])
        assert [r.buffer is s.buffer for r in results for s in results] == [
            i // 2 == j // 2 for i in range(6) for j in range(6)
        ]
        assert all(r.buffer is not given.buffer for r in results)
        for found, expected in zip(results, ([6, 7], [6, 7], [6, 7], [7], [5, 6], [6]), strict=True):
            np.testing.assert_array_equal(EAGER.read(found), expected)
