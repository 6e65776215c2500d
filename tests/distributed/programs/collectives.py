"""Every collective with arguments drawn by hypothesis, equal on all ranks, against NumPy."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import polyhal
from polyhal import distributed

GROUP = distributed.init()
RANK, SIZE = GROUP.rank, GROUP.size
DTYPES = [
    np.dtype(d) for d in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.uint8)
]
HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
drawn = settings(
    max_examples=15,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
"""Settings for equal examples in every process, without shrinking, in which the ranks would diverge."""
counts = st.lists(st.integers(0, 70), min_size=SIZE, max_size=SIZE)
shapes = st.lists(st.integers(0, 5), min_size=0, max_size=3).map(tuple)
dtypes = st.sampled_from(DTYPES)
seeds = st.integers(0, 2**31)


def values(seed: int, rank: int, size: int, dtype: np.dtype) -> np.ndarray:
    """Return a rank's operand. Integers overflow in sums, floats differ in magnitude."""
    random = np.random.default_rng((seed, rank))
    if dtype.kind in "iu":
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size, dtype, endpoint=True)
    return (random.standard_normal(size) * 10.0 ** random.integers(-3, 3, size)).astype(dtype)


def check_sum(found: np.ndarray, rows: list[np.ndarray]) -> None:
    """Check a sum: integers wrap around; floats differ from the exact sum by at most the roundings of the additions."""
    if found.dtype.kind in "iu":
        assert np.array_equal(found, functools.reduce(np.add, rows))
        return
    wide = [row.astype(np.float64) for row in rows]
    exact, magnitude = functools.reduce(np.add, wide), functools.reduce(np.add, map(np.abs, wide))
    half = found.dtype in HALVES
    unit = float(np.finfo(np.float32).eps if half else np.finfo(found.dtype).eps) / 2
    bound = (len(rows) - 1) * unit * magnitude * 1.01
    if half:
        kind = ml_dtypes.finfo(found.dtype)
        bound += float(kind.eps) / 2 * np.abs(exact) * 1.01 + float(kind.smallest_subnormal)
    assert (np.abs(found.astype(np.float64) - exact) <= bound).all()


def check_equal_everywhere(found: np.ndarray) -> None:
    """Check that all ranks have bit-identical values."""
    everything = np.empty(found.nbytes * SIZE, np.uint8)
    GROUP.all_gather(np.ascontiguousarray(found).reshape(-1).view(np.uint8), everything, [found.nbytes] * SIZE)
    parts = everything.reshape(SIZE, -1)
    assert (parts == parts[0]).all()


@drawn
@given(
    st.one_of(st.integers(0, 300), st.sampled_from([16384, 100_003])),
    dtypes,
    st.sampled_from(["sum", "max", "min"]),
    seeds,
)
def all_reduce(size: int, dtype: np.dtype, reduction: str, seed: int) -> None:
    rows = [values(seed, r, size, dtype) for r in range(SIZE)]
    found = rows[RANK].copy()
    GROUP.all_reduce(found, reduction)
    if reduction == "sum":
        check_sum(found, rows)
    else:
        assert np.array_equal(found, functools.reduce(np.maximum if reduction == "max" else np.minimum, rows))
    check_equal_everywhere(found)


@drawn
@given(counts, dtypes, st.sampled_from(["sum", "max", "min"]), seeds)
def reduce_scatter(counts: list[int], dtype: np.dtype, reduction: str, seed: int) -> None:
    rows = [values(seed, r, sum(counts), dtype) for r in range(SIZE)]
    found = np.empty(counts[RANK], dtype)
    GROUP.reduce_scatter(rows[RANK], found, counts, reduction)
    begin = sum(counts[:RANK])
    parts = [row[begin : begin + counts[RANK]] for row in rows]
    if reduction == "sum":
        check_sum(found, parts)
    else:
        assert np.array_equal(found, functools.reduce(np.maximum if reduction == "max" else np.minimum, parts))


@drawn
@given(counts, dtypes, seeds, st.integers(0, SIZE - 1), st.booleans())
def movements(counts: list[int], dtype: np.dtype, seed: int, root: int, inside: bool) -> None:
    parts = [values(seed, r, n, dtype) for r, n in enumerate(counts)]
    whole = np.concatenate(parts)
    target = np.zeros_like(whole)
    begin = sum(counts[:RANK])
    own = target[begin : begin + counts[RANK]]
    own[:] = parts[RANK]
    GROUP.all_gather(own if inside else parts[RANK], target, counts)
    assert same(target, whole)

    gathered = np.zeros_like(whole) if root == RANK else None
    GROUP.gather(parts[RANK], gathered, counts, root)
    assert gathered is None or same(gathered, whole)

    scattered = np.zeros_like(parts[RANK])
    GROUP.scatter(whole if root == RANK else None, scattered, counts, root)
    assert same(scattered, parts[RANK])

    sent = whole.copy() if root == RANK else np.zeros_like(whole)
    GROUP.broadcast(sent, root)
    assert same(sent, whole)

    other = (root + 1) % SIZE
    if root == RANK:
        GROUP.send(whole, other)
    if other == RANK:
        received = np.zeros_like(whole)
        GROUP.receive(received, root)
        assert same(received, whole)
    GROUP.barrier()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays are bit-identical."""
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@drawn
@given(shapes, st.sampled_from(["sum", "mean", "max", "min"]), seeds, st.booleans())
def tensors(shape: tuple[int, ...], op: str, seed: int, turned: bool) -> None:
    rows = [values(seed, r, int(np.prod(shape)), np.dtype(np.float32)).reshape(shape) for r in range(SIZE)]
    x = polyhal.tensor(rows[RANK])
    x = x.permute(*reversed(range(len(shape)))) if turned and len(shape) > 1 else x
    found = distributed.all_reduce(x, op)
    assert found is x
    result = x.permute(*reversed(range(len(shape)))).numpy() if turned and len(shape) > 1 else x.numpy()
    stacked = np.stack(rows).astype(np.float64)
    expected = {"sum": stacked.sum(0), "mean": stacked.mean(0), "max": stacked.max(0), "min": stacked.min(0)}[op]
    unit = float(np.finfo(np.float32).eps) / 2
    assert (np.abs(result - expected) <= SIZE * unit * np.abs(stacked).sum(0)).all()

    if shape:
        assert np.array_equal(distributed.all_gather(polyhal.tensor(rows[RANK])).numpy(), np.concatenate(rows))
        whole = np.concatenate(rows)
        scattered = distributed.scatter(polyhal.tensor(whole), [shape[0]] * SIZE, root=SIZE - 1)
        assert np.array_equal(scattered.numpy(), rows[RANK])
        gathered = distributed.gather(polyhal.tensor(rows[RANK]))
        assert (gathered is None) == (RANK != 0)
        assert gathered is None or np.array_equal(gathered.numpy(), whole)
        part = distributed.reduce_scatter(polyhal.tensor(rows[RANK]), "max", [shape[0], *[0] * (SIZE - 1)])
        assert np.array_equal(part.numpy(), np.max(rows, 0) if RANK == 0 else np.empty((0, *shape[1:])))
    assert np.array_equal(distributed.broadcast(polyhal.tensor(rows[RANK]), 1).numpy(), rows[1])


def large() -> None:
    """Test arrays and tensors of several chunks."""
    size = 3_000_017
    rows = [np.random.default_rng((7, r)).random(size, np.float32) for r in range(SIZE)]
    x = distributed.all_reduce(polyhal.tensor(rows[RANK]))
    check_sum(x.numpy(), rows)
    check_equal_everywhere(x.numpy())
    counts = [size - 5, *[0] * (SIZE - 2), 5]
    found = np.empty(counts[RANK], np.float32)
    GROUP.reduce_scatter(rows[RANK], found, counts)
    begin = sum(counts[:RANK])
    assert same(found, x.numpy()[begin : begin + counts[RANK]]), "how a vector is divided changes no bit"


def compressed() -> None:
    """Check that errors that are fed back add up to one rounding error for any number of steps."""
    steps, size = 50, 1000
    exact = np.zeros(size)
    sums = {feedback: np.zeros(size) for feedback in (False, True)}
    reducers = {feedback: distributed.CompressedSum("bfloat16", error_feedback=feedback) for feedback in sums}
    rows = [values(3, r, size, np.dtype(np.float32)) for r in range(SIZE)]
    for _ in range(steps):
        exact += np.sum(rows, 0, np.float64)
        for feedback, reduce in reducers.items():
            sums[feedback] += reduce(polyhal.tensor(rows[RANK]), key="w").numpy()
    error = {feedback: np.abs(total - exact).sum() for feedback, total in sums.items()}
    assert error[True] < error[False] / 10


for check in (all_reduce, reduce_scatter, movements, tensors, large, compressed):
    check()
print(f"rank {RANK} of {SIZE}: all collectives are right", flush=True)
