"""Engines other than MPI: collectives over mailboxes, plug-ins, and Ray if it is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal import distributed
from polyhal.distributed.engines import Engines
from polyhal.distributed.solo import SoloGroup
from polyhal.hal.collectives.process_group import ProcessGroup, ProcessGroupError, ProcessGroupSpec
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.hookspecs import hookimpl

from .thread_ranks import on_threads


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5),
    st.integers(0, 2**31),
    st.sampled_from([1, 1 << 12]),
    st.data(),
)
def test_every_collective_over_mailboxes(counts: list[int], seed: int, repeat: int, data: st.DataObject) -> None:
    size, root = len(counts), data.draw(st.integers(0, len(counts) - 1))
    counts = [n * repeat for n in counts]
    random = np.random.default_rng(seed)
    rows = [random.integers(-100, 100, sum(counts)).astype(np.int32) for _ in counts]
    starts = np.cumsum([0, *counts])
    parts = [rows[r][starts[r] : starts[r + 1]] for r in range(size)]

    def program(group: ProcessGroup) -> bool:
        own = slice(starts[group.rank], starts[group.rank + 1])
        total = rows[group.rank].copy()
        group.all_reduce(total)
        part = np.empty(counts[group.rank], np.int32)
        group.reduce_scatter(rows[group.rank], part, counts, "max")
        whole = np.empty(sum(counts), np.int32)
        group.all_gather(parts[group.rank], whole, counts)
        sent = rows[root].copy() if group.rank == root else np.empty_like(total)
        group.broadcast(sent, root)
        scattered = np.empty_like(part)
        group.scatter(rows[root] if group.rank == root else None, scattered, counts, root)
        gathered = np.empty_like(whole) if group.rank == root else None
        group.gather(parts[group.rank], gathered, counts, root)
        if size > 1 and group.rank == root:
            group.send(total, (root + 1) % size)
        if size > 1 and group.rank == (root + 1) % size:
            received = np.empty_like(total)
            group.receive(received, root)
            assert (received == total).all()
        group.barrier()
        return (
            np.array_equal(total, np.sum(rows, 0))
            and np.array_equal(part, np.max(rows, 0)[own])
            and np.array_equal(whole, np.concatenate(parts))
            and np.array_equal(sent, rows[root])
            and np.array_equal(scattered, rows[root][own])
            and (gathered is None or np.array_equal(gathered, whole))
        )

    assert on_threads(size, program) == [True] * size


def test_sums_of_halves_are_rounded_once_in_the_order_of_the_ranks() -> None:
    rows = np.array([[256.0], [1.0], [1.0]])

    def program(group: ProcessGroup) -> float:
        value = rows[group.rank].astype(ml_dtypes.bfloat16)
        group.all_reduce(value)
        return float(value[0])

    assert on_threads(3, program) == [258.0] * 3, "one by one, 256 + 1 would be rounded to 256 twice"


def test_all_ranks_receive_the_reason_for_an_abort() -> None:
    def program(group: ProcessGroup) -> None:
        if group.rank == 1:
            group.abort("has no more data")
            return
        group.barrier()

    results = on_threads(3, program)
    assert results[1] is None
    for error in (results[0], results[2]):
        assert isinstance(error, ProcessGroupError)
        assert "rank 1 has no more data" in str(error)


def test_a_rank_that_does_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_COLLECTIVE_TIMEOUT", "0.05")
    results = on_threads(2, lambda group: group.barrier() if group.rank == 0 else None)
    assert "[barrier] nothing came from rank 1 within 0.05 s" in str(results[0])
    results = on_threads(2, lambda group: group.all_reduce(np.zeros(2 + group.rank, np.float32)))
    assert "rank 1 sent 12 bytes to rank 0; expected 8" in str(results[0])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda g: g.all_reduce(np.zeros((2, 2))), r"an array of shape \(2, 2\); expected a contiguous vector"),
        (lambda g: g.all_reduce(np.zeros(4)[::2]), "expected a contiguous vector"),
        (lambda g: g.all_reduce(np.zeros(4), "median"), "unknown reduction 'median'"),
        (lambda g: g.broadcast(np.zeros(4), 1), "rank 1 does not exist; expected 0 to 0"),
        (lambda g: g.all_gather(np.zeros(4), np.zeros(4), [2, 2]), "expected one for each of 1 ranks"),
        (lambda g: g.all_gather(np.zeros(4), np.zeros(5), [4]), "an array of 5 elements; expected 4"),
        (lambda g: g.all_gather(np.zeros(4), np.zeros(4, np.int8), [4]), "an array of int8; expected float64"),
        (lambda g: g.scatter(None, np.zeros(4), [4]), "the root passed no array"),
    ],
)
def test_arguments_that_would_leave_others_waiting_are_refused(
    call: Callable[[ProcessGroup], Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        call(SoloGroup())


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("count", [50, 100_000])
def test_a_mean_is_rounded_once(dtype: Any, count: int) -> None:
    rows = np.random.default_rng(count).normal(size=(3, count)).astype(dtype)
    wide = rows.astype(np.float32)
    expected = ((wide[0] + wide[1] + wide[2]) / np.float32(3)).astype(dtype)

    def program(group: ProcessGroup) -> bool:
        whole, part = rows[group.rank].copy(), np.empty(count if group.rank == 1 else 0, dtype)
        group.all_reduce(whole, "mean")
        group.reduce_scatter(rows[group.rank], part, [0, count, 0], "mean")
        return np.array_equal(whole, expected) and np.array_equal(part, expected[: part.size])

    assert on_threads(3, program) == [True] * 3


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_a_mean_of_integers_is_refused(dtype: Any) -> None:
    with pytest.raises(UnsupportedDTypeError, match=r"the mean of an array of \w+; expected a floating dtype; use sum"):
        SoloGroup().all_reduce(np.ones(4, dtype), "mean")


class _Plugin:
    @hookimpl
    def polyhal_process_groups(self) -> list[ProcessGroupSpec]:
        return [ProcessGroupSpec("carrier_pigeons", SoloGroup), ProcessGroupSpec("nothing", lambda: 3)]


class _Broken:
    @hookimpl
    def polyhal_process_groups(self) -> list[ProcessGroupSpec]:
        raise OSError("the pigeons are gone")


plugin, broken = _Plugin(), _Broken()


def test_engines_of_other_packages() -> None:
    points = [
        EntryPoint(name, f"{__name__}:{name}", "polyhal.process_groups") for name in ("plugin", "broken", "absent")
    ]
    engines = Engines(points)
    assert isinstance(engines.connect("carrier_pigeons"), SoloGroup)
    assert engines.failures[0].reason == "OSError: the pigeons are gone"
    assert len(engines.failures) == 2
    with pytest.raises(ProcessGroupError, match="unknown engine 'mip'; expected ray, mpi, carrier_pigeons"):
        engines.connect("mip")
    with pytest.raises(ValueError, match="connected 3; expected a ProcessGroup"):
        engines.connect("nothing")


def test_ranks_on_ray() -> None:
    pytest.importorskip("ray", reason="needs ray: pip install 'polyhal[ray]'")
    from polyhal.distributed import ray as engine

    def program(fails: str) -> tuple[int, float]:
        group = distributed.init()
        values = np.full(300_000, group.rank + 1, np.float32)
        for step in range(4):
            group.all_reduce(values, "sum" if step == 0 else "max")
            if step == 2 and group.rank == 1 and fails:
                if fails == "killed":
                    os._exit(1)
                raise ValueError("the data are bad")
        return group.rank, float(values.sum())

    try:
        assert engine.run(program, 3, ("",)) == [(rank, 6.0 * 300_000) for rank in range(3)]
        with pytest.raises(ProcessGroupError, match="rank 1 failed: ValueError: the data are bad"):
            engine.run(program, 3, ("raises",))
        with pytest.raises(ProcessGroupError, match="rank 1 was killed or crashed"):
            engine.run(program, 3, ("killed",))
    finally:
        import ray

        ray.shutdown()
