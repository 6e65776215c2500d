"""The loader: order, resuming, prefetching, and closing cleanly."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.data import DataLoader, TensorDataset
from polyhal.data.transfer import PinnedSlot
from polyhal.hal.errors import IncompatibleFileError
from polyhal.hal.system.discovery.registry import registry
from polyhal.parallel import DataParallel

DATA = TensorDataset(np.arange(10, dtype=np.float32), np.arange(10, dtype=np.int32))


def numbers(loader: Any) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


def workers() -> int:
    return sum(t.name == "polyhal-data" for t in threading.enumerate())


@pytest.fixture(params=[0, 1, 3])
def prefetch(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_order(device: ph.Device, prefetch: int) -> None:
    loader = DataLoader(DATA, 4, device=device, prefetch=prefetch)
    assert len(loader) == 3
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    x, y = next(iter(loader))
    assert x.device is device
    assert x.dtype is ph.float32
    assert y.dtype is ph.int32
    dropping = DataLoader(DATA, 4, drop_last=True, device=device, prefetch=prefetch)
    assert len(dropping) == 2
    assert numbers(dropping) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert workers() == 0


def test_batches_of_a_parallel_model_are_divided_among_its_devices(prefetch: int) -> None:
    layer = ph.nn.Linear(2, 2, device="numpy")
    names = ["numpy", "sim:h200*2:0", "opencl" if registry().probe("opencl") else "sim:h200*2:1"]
    model = DataParallel(layer, names, shares=[2, 1, 1])
    data = TensorDataset(np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10, dtype=np.int32))
    batches = list(DataLoader(data, 4, parallel=model, prefetch=prefetch))
    assert [[part.tolist() for part in y.tensors] for _, y in batches] == [
        [[0, 1], [2], [3]],
        [[4, 5], [6], [7]],
        [[8], [9], []],
    ]
    for x, _ in batches:
        assert [part.device for part in x.tensors] == list(model.devices)
    np.testing.assert_array_equal(batches[1][0].tensors[2].numpy(), [[14.0, 15.0]])
    with pytest.raises(ValueError, match="got device numpy and a parallel model"):
        DataLoader(data, 4, parallel=model, device="numpy")


def test_shuffling(prefetch: int) -> None:
    loader = DataLoader(DATA, 3, shuffle=True, seed=5, device="numpy", prefetch=prefetch)
    first, second = numbers(loader), numbers(loader)
    for epoch in (first, second):
        assert sorted(i for batch in epoch for i in batch) == list(range(10))
    assert first != second
    twin = DataLoader(DATA, 3, shuffle=True, seed=5, device="numpy", prefetch=2)
    assert [numbers(twin), numbers(twin)] == [first, second]
    ph.manual_seed(1)
    a = numbers(DataLoader(DATA, 3, shuffle=True, device="numpy"))
    ph.manual_seed(1)
    assert numbers(DataLoader(DATA, 3, shuffle=True, device="numpy")) == a


@pytest.mark.parametrize("stop", range(5))
def test_resume(stop: int, prefetch: int) -> None:
    whole = DataLoader(DATA, 3, shuffle=True, seed=8, device="numpy", prefetch=prefetch)
    numbers(whole)  # the second pass is the one that is interrupted
    iterator = iter(whole)
    for _ in range(stop):
        next(iterator)
    state = whole.state_dict()
    rest = numbers(iterator)
    resumed = DataLoader(DATA, 3, shuffle=True, seed=0, device="numpy", prefetch=prefetch)
    resumed.load_state_dict(state)
    assert numbers(resumed) == rest
    assert numbers(resumed) == numbers(whole)
    with pytest.raises(IncompatibleFileError, match="batch_size was 3, here 4"):
        DataLoader(DATA, 4, shuffle=True, device="numpy").load_state_dict(state)


def test_early_exit_stops_the_thread() -> None:
    loader = DataLoader(DATA, 1, device="numpy", prefetch=2)
    for _ in loader:
        assert workers() == 1
        break
    assert workers() == 0
    assert numbers(loader)[0] == [0]  # an abandoned pass counts as done; the next starts afresh

    def interrupted() -> None:
        for i, _ in enumerate(loader):
            if i == 2:
                raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        interrupted()
    iterator = iter(loader)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert workers() == 0


class Failing:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            raise OSError("sample 4 is gone")
        return np.float32(index)


def test_errors_of_the_dataset_reach_the_loop(prefetch: int) -> None:
    seen: list[list[float]] = []
    with pytest.raises(OSError, match="sample 4 is gone"):
        seen.extend(batch.tolist() for batch in DataLoader(Failing(), 2, device="numpy", prefetch=prefetch))
    assert seen == [[0, 1], [2, 3]]
    assert workers() == 0


def test_collate_function(device: ph.Device) -> None:
    def pad(samples: list[Any]) -> dict[str, Any]:
        longest = max(len(s) for s in samples)
        return {"ids": np.array([s + [0] * (longest - len(s)) for s in samples], np.int32), "count": len(samples)}

    loader = DataLoader([[1], [2, 3], [4, 5, 6]], 2, collate_fn=pad, device=device)  # type: ignore[arg-type]
    batches = list(loader)
    assert batches[0]["ids"].tolist() == [[1, 0], [2, 3]]
    assert batches[1]["count"] == 1


def test_refused_arguments() -> None:
    with pytest.raises(ValueError, match="batch_size is 0"):
        DataLoader(DATA, 0, device="numpy")
    with pytest.raises(ValueError, match="prefetch is -1"):
        DataLoader(DATA, prefetch=-1, device="numpy")


class PinnedBackend:
    """NumPy's backend with page-locked memory that notices when it is overwritten too early."""

    def __init__(self) -> None:
        self._inner = ph.Device("numpy").backend
        self.pinned = 0
        self.pending: list[tuple[memoryview, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def allocate_pinned(self, nbytes: int) -> memoryview:
        self.pinned += 1
        return memoryview(bytearray(nbytes))

    def copy_to_device_async(self, src: memoryview, dst: Any, offset: int) -> Any:
        """Copies only when the event is waited for, which is the latest moment a device may do it."""
        copied = bytes(src)
        backend = self

        class Event:
            def wait(self) -> None:
                assert bytes(src) == copied, "the memory changed before the copy was complete"
                backend._inner.copy_to_device(src, dst, offset)

            def is_complete(self) -> bool:
                return False

        self._inner.copy_to_device(src, dst, offset)
        return Event()


def test_pinned_slots_are_reused_only_when_free(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ph.Device("numpy")
    backend = PinnedBackend()
    monkeypatch.setattr(device, "backend", backend)
    monkeypatch.setattr("polyhal.data.loader.slot_factory", lambda device: lambda: PinnedSlot(device, backend))
    loader = DataLoader(DATA, 3, shuffle=True, seed=1, device=device, prefetch=2)
    expected = numbers(DataLoader(DATA, 3, shuffle=True, seed=1, device=device, prefetch=0))
    assert numbers(loader) == expected
    assert backend.pinned == 2
