"""Load balancing of unequal devices: rows follow measured speeds, and change only the time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyhal as ph
from benchmarks.throttled import throttled
from polyhal import nn, optim
from polyhal.nn import functional as F
from polyhal.parallel import DataParallel, balance
from polyhal.parallel.balance import _KEPT, deal

PAIR = ["numpy", "numpy:no_f64"]
ROWS = 24
lines = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=3)


@given(lines, st.integers(0, 9))
def test_no_other_division_finishes_earlier(lines: list[tuple[float, float]], total: int) -> None:
    def ready(rows: tuple[int, ...]) -> float:
        return max(a + b * n if n else 0.0 for (a, b), n in zip(lines, rows, strict=True))

    every = [r for r in itertools.product(range(total + 1), repeat=len(lines)) if sum(r) == total]
    rows = deal(total, lines)
    assert sum(rows) == total
    assert ready(rows) == min(map(ready, every))


def test_memory_limits_the_rows_of_a_device() -> None:
    assert deal(12, [(0, 1), (0, 5)], most=[4, 100]) == (4, 8)
    assert sum(deal(12, [(0, 1), (0, 1)], most=[4, 4])) == 12


class Training:
    """A regression model that is trained in captured steps."""

    def __init__(self, devices: list[Any], width: int = 8, **options: Any) -> None:
        ph.manual_seed(0)
        module = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)).to("numpy")
        self.model = DataParallel(module, devices, **options)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.width = width
        self.rng = np.random.default_rng(0)
        self.step = ph.jit(self._step)

    def _step(self, x: Any, y: Any) -> ph.Tensor:
        self.optimizer.zero_grad()
        loss: ph.Tensor = self.model.map(lambda m, x, y: F.mse_loss(m(x), y), x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, steps: int, rows: int = ROWS, sharded: bool = True) -> list[float]:
        found = []
        for _ in range(steps):
            x = self.rng.standard_normal((rows, self.width)).astype(np.float32)
            y = np.roll(x, 1, 1)
            home = self.model.devices[0]
            batch = self.model.shard(x, y) if sharded else (ph.tensor(x, device=home), ph.tensor(y, device=home))
            found.append(self.step(*batch).item())
        return found


def test_rows_converge_to_the_ratio_of_speeds() -> None:
    """Both devices are simulated, and the slow one takes three times as long for a row, whatever happens here.

    The first division assumes that time is in proportion to rows, the second knows two points of a line that is straight but
    for the order in which threads meet: the devices are then ready within 5 % and a row of each other.
    """
    profile = "sim:pi5*2"
    run = Training([f"{profile}:0", throttled(f"{profile}:1", 3)], width=128, balance=True)
    balancer = run.model.balancer
    assert balancer is not None
    rows = 1024
    measured = balance._WARM_UP + balance._SAMPLES + 2
    run.losses(measured, rows)
    (decision,) = balancer.decisions
    assert "gradients are expected" in decision.text
    run.losses(measured, rows)
    assert run.model.rebalance()
    run.losses(measured, rows)
    fast, slow = run.model.counts(rows)
    assert fast > 2 * slow > 0
    seconds = [np.median(times[n]) for times, n in zip(balancer._times, (fast, slow), strict=True)]
    assert min(seconds) / max(seconds) > 0.95 - 1 / slow
    assert max(seconds) < max(decision.seconds) / 1.05


@pytest.mark.parametrize("sharded", [True, False])
def test_another_division_does_not_change_losses(sharded: bool) -> None:
    plain = Training(PAIR[:1]).losses(20)
    run = Training(PAIR, balance=True)
    assert run.model.balancer is not None
    found = run.losses(8, sharded=sharded)
    for seconds, rows in (((1.0, 3.0), (18, 6)), ((1.0, 1.0), (18, 6)), ((3.0, 0.1), (6, 18))):
        for _ in range(_KEPT):  # enough runs to replace the measured times
            run.model.balancer.note(run.model.counts(ROWS), seconds)
        run.model.rebalance()
        assert sum(run.model.counts(ROWS)) == sum(rows)
        found += run.losses(4, sharded=sharded)
    assert len({d.rows for d in run.model.balancer.decisions}) > 1
    np.testing.assert_allclose(found, plain, rtol=1e-5)


def test_one_slow_measurement_changes_nothing() -> None:
    run = Training(PAIR, balance=True)
    balancer = run.model.balancer
    assert balancer is not None
    for seconds in ((1.0, 1.0), (1.0, 9.0), (1.02, 1.0)):
        balancer.note((12, 12), seconds)
    assert not balancer.rebalance()


def test_the_division_is_fixed_in_deterministic_mode_and_without_balancing() -> None:
    run = Training(PAIR, balance=True)
    assert run.model.balancer is not None
    run.model.balancer.note((12, 12), (1.0, 3.0))
    ph.use_deterministic_algorithms(True)
    try:
        assert not run.model.rebalance()
    finally:
        ph.use_deterministic_algorithms(False)
    assert run.model.shares == (0.5, 0.5)
    with pytest.raises(ValueError, match=r"the model measures nothing; DataParallel\(..., balance=True\)"):
        Training(PAIR).model.rebalance()


def test_a_device_with_little_memory_processes_few_rows() -> None:
    """It is a thousand times as fast as the other one, but lacks memory for the corresponding rows."""
    run = Training(["sim:teaching*2:0,memory=2MiB", "sim:teaching*2:1,memory=64MiB"], 64, shares=[1, 9], balance=True)
    balancer = run.model.balancer
    assert balancer is not None
    run.losses(balance._WARM_UP + 2, 512)  # some are timed, but too few for a decision
    (most, much) = balancer._most
    assert 51 < most < 4000 < much
    balancer.note(run.model.counts(4000), (1e-5, 1.0))
    assert run.model.rebalance()
    assert run.model.counts(4000) == (most, 4000 - most)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decide after few runs: virtual times do not change while kernels are compiled."""
    for name, runs in (("_WARM_UP", 1), ("_SAMPLES", 3), ("_INTERVAL", 4), ("_AGAIN", 16)):
        monkeypatch.setattr(balance, name, runs)


@pytest.mark.usefixtures("quick")
def test_a_device_that_has_become_fast_processes_rows_again() -> None:
    """Both are equally fast, but the second one seemed to take longer for a row than the first for all of them.

    Launches take a third of the time, so that one row tells little about many.
    """
    run = Training(["sim:teaching*2:0", "sim:teaching*2:1"], 64, balance=True)
    balancer, rows = run.model.balancer, 1024
    assert balancer is not None
    balancer.note((rows // 2, rows // 2), (1e-3, 1e3))
    assert run.model.rebalance()
    run.losses(80, rows)
    idle, tried, *later = [d.rows for d in balancer.decisions]
    assert (idle, tried) == ((rows, 0), (rows - 1, 1))
    assert "sim:teaching*2:1 1 (was 0), to be measured" in balancer.decisions[1].text
    assert later
    assert min(later[-1]) > max(later[-1]) / 2


@pytest.mark.usefixtures("quick")
def test_a_device_that_is_still_too_slow_is_tried_ever_more_rarely() -> None:
    """One row takes longer on it than all rows take on the first device."""
    run = Training(["sim:h200", "sim:pi5"], 64, balance=True)
    balancer, rows = run.model.balancer, 64
    assert balancer is not None
    run.losses(120, rows)
    first, *later = [d.rows for d in balancer.decisions]
    assert first[0] > first[1] > 0
    assert later == [(rows, 0), (rows - 1, 1), (rows, 0), (rows - 1, 1), (rows, 0)]
    assert balancer._again == 4 * balance._AGAIN
