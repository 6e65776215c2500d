"""Groups of several devices in each of several processes, against NumPy, and a model that they train."""

from __future__ import annotations

import numpy as np

import polyhal as ph
from polyhal import distributed, nn, optim
from polyhal.models import GPT, GPTConfig
from polyhal.parallel import DataParallel, Group

PROCESSES = distributed.init()
RANK, RANKS = PROCESSES.rank, PROCESSES.size
OWN = ["numpy", "numpy:no_f64"] if RANK % 2 == 0 else ["sim"]
"""Test processes with different numbers of devices."""


def check_collectives() -> None:
    group = Group(OWN, PROCESSES)
    assert group.first == RANK // 2 * 3 + (RANK % 2) * 2
    assert group.size == sum(2 if r % 2 == 0 else 1 for r in range(RANKS))
    members, first = range(group.size), group.first
    mine = slice(first, first + len(OWN))
    for seed, dtype in enumerate([ph.float32, ph.int32, ph.bfloat16]):
        rng = np.random.default_rng(seed)
        shape, root = (int(rng.integers(0, 12)), 5), int(rng.integers(0, group.size))
        values = [rng.integers(-9, 9, shape).astype(dtype.numpy) for _ in members]
        total = sum(v.astype(np.int64) for v in values)
        xs = [ph.tensor(v, dtype=dtype, device=d) for v, d in zip(values[mine], OWN, strict=True)]
        for got in group.all_reduce(xs):
            assert np.array_equal(got.numpy().astype(np.int64), total)
        one = group.reduce(xs, root)
        assert (one is not None) == (first <= root < first + len(OWN))
        assert one is None or np.array_equal(one.numpy().astype(np.int64), total)
        lengths = rng.multinomial(shape[0], np.full(group.size, 1 / group.size)).tolist()
        cuts = np.cumsum(lengths)[:-1]
        parts = group.reduce_scatter(xs, sizes=lengths)
        for got, expected in zip(parts, np.split(total, cuts)[mine], strict=True):
            assert np.array_equal(got.numpy().astype(np.int64), expected)
        for got in group.all_gather(parts):
            assert np.array_equal(got.numpy().astype(np.int64), total)
        joined = group.gather(parts, root)
        assert joined is None or np.array_equal(joined.numpy().astype(np.int64), total)
    group.barrier()


def check_training() -> None:
    """Compare two devices in each process, with a batch divided among all devices, to one device with the whole batch."""
    config = GPTConfig(vocab_size=33, block_size=8, n_layer=1, n_head=2, n_embd=16)

    def train(model: GPT | DataParallel, rows: slice, captured: bool) -> np.ndarray:
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        rng = np.random.default_rng(0)

        def learn(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
            optimizer.zero_grad()
            loss = model.map(GPT.loss, x, y) if isinstance(model, DataParallel) else model.loss(x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = ph.jit(learn) if captured else learn
        losses = []
        for _ in range(20):
            x = rng.integers(0, 33, (4 * RANKS, 8)).astype(np.int32)
            batch = [ph.tensor(a[rows], device="numpy") for a in (x, x * 5 % 33)]
            losses.append(step(*batch).item())
        return np.array(losses)

    ph.manual_seed(0)
    alone = train(GPT(config, device="numpy"), slice(None), captured=False)
    uneven = slice(0, 3) if RANK == 0 else slice(4 * RANK - 1, 4 * RANK + 3 + (RANK == RANKS - 1))
    for captured in (False, True):
        ph.manual_seed(RANK)  # all start with the parameters of rank 0
        model = DataParallel(GPT(config, device="numpy"), ["numpy", "numpy:no_f64"], processes=PROCESSES)
        losses = train(model, uneven, captured)
        np.testing.assert_allclose(losses, alone, rtol=1e-5)
        states = [same_everywhere(p.numpy()) for p in model.parameters()]
        assert all(states)


def check_statistics() -> None:
    """Test the statistics of all rows of all processes, in the layer and in its gradient."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3 * RANKS + 1, 4)).astype(np.float32)
    scale = rng.standard_normal(x.shape).astype(np.float32)
    own = slice(3 * RANK, 3 * RANK + 3 + (RANK == RANKS - 1))
    layer = nn.SyncBatchNorm(4, momentum=1.0, device="numpy")
    model = DataParallel(layer, ["numpy", "numpy:no_f64"], processes=PROCESSES)
    rows = ph.tensor(x[own], device="numpy", requires_grad=True)
    (model(rows) * ph.tensor(scale[own], device="numpy")).sum().backward()
    assert layer.running_var is not None
    wide, g = x.astype(np.float64), scale.astype(np.float64)
    np.testing.assert_allclose(layer.running_var.numpy(), wide.var(axis=0, ddof=1), rtol=1e-5)
    r = 1 / np.sqrt(wide.var(axis=0) + layer.eps)
    normal = (wide - wide.mean(axis=0)) * r
    expected = r * (g - g.mean(axis=0) - normal * (g * normal).mean(axis=0))
    assert rows.grad is not None
    np.testing.assert_allclose(rows.grad.numpy(), expected[own], rtol=1e-4, atol=1e-5)


def same_everywhere(values: np.ndarray) -> bool:
    """Return whether an array is bit-identical in all processes."""
    most, least = values.copy().reshape(-1), values.copy().reshape(-1)
    PROCESSES.all_reduce(most, "max")
    PROCESSES.all_reduce(least, "min")
    return np.array_equal(most, least)


check_collectives()
check_training()
check_statistics()
print("devices of all processes agree")
