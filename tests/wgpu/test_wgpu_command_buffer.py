"""Launches that are prepared once and encoded again at each replay."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from polyhal.backends.wgpu.encoder import MAX_DISPATCHES
from polyhal.hal import dtypes
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import BindingSlot

_SPEC = contiguous(dtypes.float32, (100,))


def test_replays_follow_numbers_and_memory(device: Any) -> None:
    backend = device.backend
    first, second, total, scratch = (backend.allocate(_SPEC.nbytes) for _ in range(4))
    for handle, value in ((first, 1.0), (second, 10.0), (total, 0.0), (scratch, 0.0)):
        backend.fill(value, Ref(handle, _SPEC, 0))
    now = [2.0]
    live, place = RuntimeScalar(lambda: now[0]), BindingSlot()
    moving, sums, added = Ref(place, _SPEC, 0), Ref(total, _SPEC, 0), Ref(scratch, _SPEC, 0)
    calls = [partial(backend.fill, live, added), partial(backend.binary, "add", moving, added, moving)]
    # More launches than one submission holds.
    calls += [partial(backend.binary, "add", moving, sums, sums)] * 300
    recorded = backend.record(calls)
    assert [x.call for x in recorded.launches] == list(range(302))
    values, expected = {id(first): 1.0, id(second): 10.0}, 0.0
    # From the third submission on, the sums are encoded ahead: numbers change before them, then also the memory.
    for number, handle in [(2.0, first), (3.0, first), (4.0, first), (5.0, first), (5.0, second), (-1.5, first)]:
        now[0] = number
        live.refresh()
        moved = [] if place.handle is handle else [place]
        place.handle = handle
        submissions = backend.runtime.encoder.submissions
        recorded.submit(moved)
        assert backend.runtime.encoder.submissions <= submissions + -(-302 // MAX_DISPATCHES)
        values[id(handle)] += number
        expected += 300 * values[id(handle)]
    out = np.empty(100, np.float32)
    backend.copy_from_device(total, 0, memoryview(out.view(np.uint8)))
    assert out.tolist() == [expected] * 100


def test_a_short_recording_is_one_submission(device: Any) -> None:
    backend = device.backend
    handle = backend.allocate(_SPEC.nbytes)
    recorded = backend.record([partial(backend.fill, float(i), Ref(handle, _SPEC, 0)) for i in range(5)])
    backend.flush()
    before = backend.runtime.encoder.submissions
    recorded.submit(())
    assert backend.runtime.encoder.submissions == before + 1
