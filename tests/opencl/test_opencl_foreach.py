"""Groups of pointwise ops on lists: by chunks of vectors and by single elements, over more tensors than fit in a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_harness import as_gpu
from native_ops import lower, run, upload

from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined

_SIZES = [1, 3, 40, 2048, 2049, 17003, *range(5, 30)]


@pytest.fixture(params=[False, True], ids=["as it is", "as a GPU"])
def either(device: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the device, and the device treated as a GPU."""
    if request.param:
        runtime = device.backend.runtime
        size = min(runtime.features.max_group_size, 64)
        monkeypatch.setattr(runtime, "features", as_gpu(runtime.features, group_size=size))
    return device


def test_as_single_tensors(either: Any, rng: Any) -> None:
    """Every second tensor is unaligned for vectors, and all results are bitwise equal to individual ops."""
    steps = (("multiply", (0, 2), ()), ("add", (4, 1), ()), ("divide", (5, 3), ()), ("cast", (6,), (dtypes.float16,)))
    count = len(_SIZES)
    lists = [
        [rng.uniform(-2, 2, n + i % 2).astype(np.float32)[i % 2 :] for i, n in enumerate(_SIZES)] for _ in range(2)
    ]
    shared = [np.float32(0.3)[None].reshape(()), np.float32(0.7)[None].reshape(())]
    params = {"lists": 2, "count": count, "steps": steps, "results": (6, 7)}
    found = run(either, "foreach_elementwise", [*lists[0], *lists[1], *shared], **params)
    launch, _ = lower(
        either, "foreach_elementwise", [upload(either, x) for x in (*lists[0], *lists[1], *shared)], params
    )
    assert launch.name == "pointwise_foreach"
    group = {"steps": steps, "results": (6, 7), "reduction": None}
    for i, (a, b) in enumerate(zip(*lists, strict=True)):
        wanted = run(either, "fused_elementwise", [a, b, *shared], **group)
        np.testing.assert_array_equal(found[i], wanted[0])
        np.testing.assert_array_equal(found[count + i], wanted[1])


def test_in_place(either: Any, rng: Any) -> None:
    arrays = [rng.uniform(-2, 2, n).astype(np.float32) for n in _SIZES]
    refs = [upload(either, x) for x in arrays]
    params = {"lists": 1, "count": len(refs), "steps": (("multiply", (0, 1), ()),), "results": (2,)}
    specs = tuple(r.spec for r in refs)
    launch, _ = lower(either, "foreach_elementwise", [*refs, 0.5], params)
    assert not isinstance(launch, Declined)
    launch(*refs, 0.5, *refs)
    for ref, x, spec in zip(refs, arrays, specs, strict=True):
        assert ref.spec == spec
        np.testing.assert_array_equal(either.download(ref), x * np.float32(0.5))


def test_tensors_with_gaps_are_declined(device: Any, rng: Any) -> None:
    x = upload(device, rng.uniform(-1, 1, (4, 6)).astype(np.float32).T)
    params = {"lists": 1, "count": 1, "steps": (("multiply", (0, 1), ()),), "results": (2,)}
    launch, _ = lower(device, "foreach_elementwise", [x, 2.0], params)
    assert isinstance(launch, Declined)
    assert "contiguous" in launch.reason


def test_one_number_for_each_position(either: Any, rng: Any) -> None:
    """The numbers are elements of one vector, three of four where no vector may begin."""
    arrays = [rng.uniform(-2, 2, n).astype(np.float32) for n in _SIZES]
    numbers = rng.uniform(-2, 2, len(_SIZES)).astype(np.float32)
    refs = [upload(either, x) for x in arrays]
    vector = upload(either, numbers)
    singles = [either.view(vector, (), (), i) for i in range(len(refs))]
    steps = (("multiply", (0, 1), ()), ("abs", (1,), ()), ("add", (2, 3), ()))
    params = {"lists": 2, "count": len(refs), "steps": steps, "results": (4,)}
    outs = [either.empty(dtypes.float32, x.shape) for x in arrays]
    inputs = (*refs, *singles)
    launch = either.backend.lower(
        "foreach_elementwise", tuple(r.spec for r in inputs), tuple(r.spec for r in outs), params
    )
    assert not isinstance(launch, Declined), launch.reason
    launch(*inputs, *outs)
    for out, x, number in zip(outs, arrays, numbers, strict=True):
        np.testing.assert_allclose(either.download(out), x * number + abs(number), rtol=1e-6, atol=1e-6)
