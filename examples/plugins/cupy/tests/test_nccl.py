"""Calls of NCCL and their results, with a fake library that works on host memory. Requires neither CuPy nor a device."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from polyhal_cupy import nccl
from polyhal_cupy.nccl import NcclCommunicator

import polyhal
from polyhal.backends.numpy.backend import NumpyBackend, create
from polyhal.hal import dtypes
from polyhal.hal.collectives.collective import Collective, Kind, Reduction
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import BackendError
from polyhal.hal.layout import Ref, contiguous

_NUMBERS = {v: k for k, v in nccl._DTYPES.items()}
_FUNCTIONS = {0: np.add, 2: np.maximum, 3: np.minimum}


class FakeError(Exception):
    """Fake of NCCL's error."""


class FakeNccl:
    """Fake library: calls take effect when their group ends, and every participant must have made its own."""

    NcclError = FakeError

    def __init__(self) -> None:
        self.log: list[tuple[str, int, tuple[int, ...]]] = []
        """Name, rank and arguments of each call."""
        self.opened: list[list[int]] = []
        self._group: list[tuple[str, int, tuple[int, ...]]] | None = None
        self.NcclCommunicator = SimpleNamespace(initAll=self._init_all)

    def _init_all(self, numbers: list[int]) -> list[Any]:
        self.opened.append(numbers)
        return [FakeRank(self, i) for i in range(len(numbers))]

    def groupStart(self) -> None:  # noqa: N802  the library's name
        assert self._group is None
        self._group = []

    def groupEnd(self) -> None:  # noqa: N802  the library's name
        calls, self._group = self._group, None
        assert calls is not None
        self.log += calls
        waiting = {i: [c for c in calls if c[1] == i] for i in {c[1] for c in calls}}
        received = [c for c in calls if c[0] == "recv"]
        for _, rank, (start, nbytes, _number, peer, stream) in [c for c in calls if c[0] == "send"]:
            match = next(c for c in received if c[1] == peer and c[2][3] == rank)
            received.remove(match)
            assert match[2][1] == nbytes
            assert stream == 100 + rank
            ctypes.memmove(match[2][0], start, nbytes)
        assert not received, "received data are also sent"
        rounds = [[c for c in own if c[0] not in ("send", "recv")] for own in waiting.values()]
        assert len({len(r) for r in rounds}) == 1, "participants make equal calls"
        for calls_of_all in zip(*rounds, strict=True):
            assert len({(c[0], c[2][2:-1]) for c in calls_of_all}) == 1, "with the same arguments"
            assert [c[2][-1] for c in calls_of_all] == [100 + c[1] for c in calls_of_all], "on their separate streams"
            self._carry_out(calls_of_all[0][0], [c[2] for c in calls_of_all])

    def add(self, name: str, rank: int, args: tuple[int, ...]) -> None:
        assert self._group is not None, "calls of several devices must be in a group"
        self._group.append((name, rank, args))

    def _carry_out(self, name: str, args: list[tuple[int, ...]]) -> None:
        count, number = args[0][2], args[0][3]
        dtype = _NUMBERS[number]
        n = len(args)
        if name == "broadcast":
            root = args[0][4]
            content = _view(args[root][0], dtype, count).copy()
            for _, to, *_ in args:
                _view(to, dtype, count)[:] = content
        elif name == "allGather":
            whole = np.concatenate([_view(a[0], dtype, count) for a in args])
            for _, to, *_ in args:
                _view(to, dtype, n * count)[:] = whole
        else:
            size = n * count if name == "reduceScatter" else count
            function = _FUNCTIONS[args[0][4]]
            total = _view(args[0][0], dtype, size).copy()
            for a in args[1:]:
                total = function(total, _view(a[0], dtype, size)).astype(total.dtype)
            for i, a in enumerate(args):
                if name == "reduceScatter":
                    _view(a[1], dtype, count)[:] = total[i * count : (i + 1) * count]
                elif name == "allReduce" or a[5] == i:
                    _view(a[1], dtype, count)[:] = total


class FakeRank:
    """A communicator of one device."""

    def __init__(self, library: FakeNccl, rank: int) -> None:
        self._library, self._rank = library, rank

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._library.add(name, self._rank, args)


def _view(address: int, dtype: DType, count: int) -> np.ndarray:
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype.numpy)


class FakeCuda(NumpyBackend):
    """A device with memory accessible by NCCL."""

    def __init__(self, number: int) -> None:
        super().__init__(create("").info)
        self.stream = SimpleNamespace(number=number, stream=SimpleNamespace(ptr=100 + number))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeNccl:
    def address(ref: Ref) -> int:
        return int(ref.handle.ctypes.data) + ref.offset * ref.dtype.itemsize

    monkeypatch.setattr(nccl, "address", address)
    return FakeNccl()


def communicator(library: FakeNccl, members: int) -> NcclCommunicator:
    return NcclCommunicator([Device.opened(f"cupy:{i}", FakeCuda(i)) for i in range(members)], library)


def carry_out(
    made: NcclCommunicator, collective: Collective, dtype: DType, given: list[np.ndarray]
) -> list[np.ndarray | None]:
    """Run a collective on arrays, each at an offset of one element. Returns the receive buffers of the participants."""

    def place(device: Device, values: np.ndarray) -> Ref:
        buffer = device.pool.take(1 << 16)
        made_refs.append(buffer)
        ref = Ref(buffer.handle, contiguous(dtype, values.shape), 1)
        array = np.frombuffer(buffer.handle, dtype.numpy)
        array[1 : 1 + values.size] = values
        return ref

    made_refs: list[Any] = []
    sources: list[Ref | None] = [None] * made.size
    targets: list[Ref | None] = [None] * made.size
    for i, size in made.sources(collective):
        assert given[i].size == size
        sources[i] = place(made.devices[i], given[i])
    for i, size in made.targets(collective):
        targets[i] = place(made.devices[i], np.zeros(size, dtype.numpy))
    made.run(collective, sources, targets)
    return [None if t is None else np.frombuffer(t.handle, dtype.numpy)[1 : 1 + t.size].copy() for t in targets]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("counts", [(4, 4, 4), (5, 0, 3), (1, 2), (7,) * 8], ids=str)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int16, dtypes.bool_], ids=lambda d: d.name)
def test_collectives(library: FakeNccl, kind: Kind, counts: tuple[int, ...], dtype: DType) -> None:
    rng = np.random.default_rng(5)
    n, total = len(counts), sum(counts)
    made = communicator(library, n)
    collective = Collective(kind, counts, Reduction.SUM if dtype is not dtypes.bool_ else Reduction.MAX, n - 1)
    sizes = [collective.source_size(i) or 0 for i in range(n)]
    given = [rng.integers(0, 2 if dtype is dtypes.bool_ else 9, s).astype(dtype.numpy) for s in sizes]
    got = carry_out(made, collective, dtype, given)
    starts = collective.starts
    if kind in (Kind.GATHER, Kind.ALL_GATHER):
        whole = np.concatenate(given)
    elif kind in (Kind.BROADCAST, Kind.SCATTER):
        whole = given[n - 1]
    else:
        # Sums of up to eight small integers are exact in every dtype.
        stacked = np.stack(given).astype(np.int64)
        whole = (stacked.max(0) if dtype is dtypes.bool_ else stacked.sum(0)).astype(dtype.numpy)
    for i, result in enumerate(got):
        size = collective.target_size(i)
        if size is None:
            assert result is None
        else:
            expected = whole if size == total and kind not in (Kind.SCATTER, Kind.REDUCE_SCATTER) else None
            expected = whole[starts[i] : starts[i] + counts[i]] if expected is None else expected
            np.testing.assert_array_equal(result, expected)


def names(library: FakeNccl) -> list[str]:
    return [name for name, rank, _ in library.log if rank == 0]


@pytest.mark.parametrize(
    ("kind", "counts", "expected"),
    [
        (Kind.ALL_REDUCE, (2, 1), ["allReduce"]),
        (Kind.REDUCE, (2, 1), ["reduce"]),
        (Kind.BROADCAST, (2, 1), ["broadcast"]),
        (Kind.ALL_GATHER, (2, 2), ["allGather"]),
        (Kind.ALL_GATHER, (2, 1), ["send", "recv"]),
        (Kind.REDUCE_SCATTER, (2, 2), ["reduceScatter"]),
        (Kind.REDUCE_SCATTER, (2, 1), ["reduce", "reduce"]),
        (Kind.REDUCE_SCATTER, (2, 0), ["reduce"]),
        (Kind.SCATTER, (2, 1), ["send"]),
        (Kind.GATHER, (2, 1), ["recv"]),
    ],
)
def test_the_calls_of_a_participant(
    library: FakeNccl, kind: Kind, counts: tuple[int, ...], expected: list[str]
) -> None:
    """There are no other calls, and a participant only sends to itself if its part moves."""
    made = communicator(library, 2)
    collective = Collective(kind, counts)
    given = [np.arange(collective.source_size(i) or 0, dtype=np.float32) for i in range(2)]
    carry_out(made, collective, dtypes.float32, given)
    own = [name for name, rank, args in library.log if rank == 0 and not (name in ("send", "recv") and args[3] == 0)]
    assert own == expected
    assert library.opened == [[0, 1]]


def test_maxima_of_floats_keep_nan(library: FakeNccl) -> None:
    """The host computes them, because NCCL may lose NaN."""
    made = communicator(library, 2)
    collective = Collective(Kind.ALL_REDUCE, (2, 1), Reduction.MAX)
    given = [np.array(v, np.float32) for v in ([1, np.nan, 3], [np.nan, 2, 1])]
    for result in carry_out(made, collective, dtypes.float32, given):
        np.testing.assert_array_equal(result, [np.nan, np.nan, 3])
    assert not library.log


def test_maxima_of_integers_are_computed_by_nccl(library: FakeNccl) -> None:
    made = communicator(library, 2)
    given = [np.array(v, np.int32) for v in ([1, 5, 3], [4, 2, 1])]
    for result in carry_out(made, Collective(Kind.ALL_REDUCE, (2, 1), Reduction.MAX), dtypes.int32, given):
        np.testing.assert_array_equal(result, [4, 5, 3])
    assert names(library) == ["allReduce"]


def test_errors_of_nccl_are_typed(library: FakeNccl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(numbers: list[int]) -> None:
        raise FakeError("NCCL_ERROR_UNHANDLED_CUDA_ERROR")

    monkeypatch.setattr(library.NcclCommunicator, "initAll", fail)
    given = [np.zeros(2, np.float32)] * 2
    with pytest.raises(BackendError, match="NCCL failed: NCCL_ERROR_UNHANDLED_CUDA_ERROR"):
        carry_out(communicator(library, 2), Collective(Kind.ALL_REDUCE, (1, 1)), dtypes.float32, given)


def test_tensors_are_reduced_in_place(library: FakeNccl) -> None:
    made = communicator(library, 2)
    tensors = [polyhal.full((6,), i + 1.0, device=d) for i, d in enumerate(made.devices)]
    made.run(Collective(Kind.ALL_REDUCE, (3, 3)), [t.ref for t in tensors], [t.ref for t in tensors])
    assert [t.tolist() for t in tensors] == [[3.0] * 6] * 2
