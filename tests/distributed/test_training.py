"""Training on several ranks equals training on one; checkpoints can be resumed with any number of ranks."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.distributed import ShardedLoader, ShardedUpdate
from polyhal.hal.collectives.collective import Kind
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE
from polyhal.hal.compile.scheduler.plan import StepPlan, plan_step
from polyhal.hal.dtypes import bfloat16
from polyhal.hal.errors import CorruptFileError
from polyhal.optim import SGD
from polyhal.steps.jit import Jitted, jit
from polyhal.tensor import Tensor
from polyhal.training import Ranks, rank_files
from polyhal.training import trainer as trainers
from polyhal.training.checkpoint import load_run, save_run

from .conftest import PROGRAMS, Launch
from .thread_ranks import on_threads
from .tiny import CORPUS, TOKENIZER, steps, trainer, weights

pytestmark = pytest.mark.slow

CLOSE = 1e-5
"""Relative difference of sums of float32 in another order, after 20 steps."""


@functools.cache
def alone() -> tuple[list[float], np.ndarray, float | None]:
    """Return losses, weights and validation loss of one rank."""
    trained = trainer()
    losses = steps(trained, 20)
    trained.close()
    return losses, weights(trained), trained.evaluate()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the relative distance of two vectors."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


def on_ranks(size: int, program: Callable[[Ranks], Any]) -> list[Any]:
    """Run a program on ranks that are threads. Returns their results."""
    results = on_threads(size, lambda group: program(Ranks(group)))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@pytest.fixture
def _small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets for each layer of the tiny model."""
    monkeypatch.setattr(trainers, "ShardedUpdate", functools.partial(ShardedUpdate, bucket_bytes=2000))


def test_two_processes_train_like_one(launch: Launch, tmp_path: Path) -> None:
    """The program also checks that a second run and a resumed one are bit-identical."""
    done = launch("-n", 2, PROGRAMS / "training.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    losses, expected, validation = alone()
    results = np.load(tmp_path / "results.npz")
    assert np.allclose(results["losses"], losses, rtol=CLOSE, atol=0)
    assert np.isclose(results["validation"], validation, rtol=CLOSE, atol=0)
    assert distance(results["weights"], expected) < CLOSE


@pytest.mark.usefixtures("_small_buckets")
@pytest.mark.parametrize(("size", "eager"), [(2, True), (4, False)])
def test_ranks_train_like_one(size: int, eager: bool) -> None:
    def program(ranks: Ranks) -> tuple[list[float], np.ndarray]:
        trained = trainer(ranks, eager=eager)
        losses = steps(trained, 20)
        trained.close()
        return losses, weights(trained)

    results = on_ranks(size, program)
    assert results[0][0] == pytest.approx(alone()[0], rel=CLOSE)
    assert distance(results[0][1], alone()[1]) < CLOSE
    assert all(np.array_equal(own, results[0][1]) for _, own in results), "the replicas have drifted apart"


@pytest.mark.usefixtures("_small_buckets")
def test_fewer_ranks_resume_from_a_checkpoint(tmp_path: Path) -> None:
    def begin(ranks: Ranks) -> None:
        trained = trainer(ranks)
        steps(trained, 12)
        save_run(tmp_path / "four", trained, TOKENIZER, CORPUS, None)
        trained.close()

    def go_on(ranks: Ranks) -> tuple[int, np.ndarray]:
        trained = trainer(ranks)
        load_run(tmp_path / "four", trained)
        steps(trained, 4)
        save_run(tmp_path / "two", trained, TOKENIZER, CORPUS, None)
        done = trained.done
        steps(trained, 4)
        trained.close()
        return done, weights(trained)

    on_ranks(4, begin)
    check_damage_is_named(tmp_path / "four")
    _, expected, _ = alone()
    for done, values in on_ranks(2, go_on):
        assert done == 16
        assert distance(values, expected) < CLOSE
    one = trainer()
    load_run(tmp_path / "two", one)
    steps(one, 4)
    one.close()
    assert distance(weights(one), expected) < CLOSE


def check_damage_is_named(checkpoint: Path) -> None:
    listed = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    files = sorted(rank_files.folder_of(checkpoint).iterdir())
    assert len(files) == 4, "files of earlier checkpoints are removed"
    assert all(f.name in json.dumps(listed) for f in files)
    content = files[2].read_bytes()
    files[2].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match="rank-00002-of-00004"):
        load_run(checkpoint, trainer())
    files[2].unlink()
    with pytest.raises(CorruptFileError, match="is missing"):
        load_run(checkpoint, trainer())
    files[2].write_bytes(content)


@pytest.mark.usefixtures("_small_buckets")
def test_gradients_are_summed_as_soon_as_their_bucket_is_complete() -> None:
    def program(ranks: Ranks) -> StepPlan:
        trained = trainer(ranks, accumulate=1)
        trained.step()
        trained.close()
        assert isinstance(trained._update, Jitted)
        return plan_step(trained._update.steps[0].captured)

    for plan in on_ranks(2, program):
        nodes = plan.graph.nodes
        sums = [k for k, n in enumerate(nodes) if n.op is COLLECTIVE and n.params[0].kind is Kind.REDUCE_SCATTER]
        gradients = [k for k, n in enumerate(nodes) if n.op.name == "linear_weight_grad"]
        assert len(sums) > 4
        assert len(gradients) > 4
        before = [sum(k < at for k in sums) for at in gradients]
        assert before[1] >= 1, "the first bucket waits for those of other layers"
        assert before[-1] >= len(sums) // 2, "buckets wait for the end of the backward pass"


@pytest.mark.parametrize("captured", [False, True])
def test_rounding_errors_of_gradients_are_added_later(captured: bool) -> None:
    """Gradients of 1 + 2**-10 and -1 are 1 and -1 in bfloat16, and their sums would be 0."""

    def program(ranks: Ranks) -> np.ndarray:
        p = Tensor(np.zeros(3, np.float32), device="numpy", requires_grad=True)
        update = ShardedUpdate(ranks.group, [p], [[p]], lambda parts: SGD(parts[0], lr=1.0), 0, compress=bfloat16)

        def learn() -> None:
            (p * (1 + 2**-10 if ranks.first else -1)).sum().backward()
            update.step()

        step = jit(learn, warm_up=False) if captured else learn
        for _ in range(64):
            step()
        return p.detach().numpy()

    for found in on_ranks(2, program):
        # Each rank keeps back at most half of the distance of numbers from 1 to 2.
        assert np.abs(found + 64 * 2**-10).max() <= 2 * 2**-8


def test_a_model_learns_from_gradients_in_half_precision(tmp_path: Path) -> None:
    """Losses equal float32's up to rounding; a run after rehearsals and a resumed one are bit-identical."""

    def program(ranks: Ranks) -> tuple[list[float], np.ndarray, np.ndarray]:
        trained = trainer(ranks, compress="bfloat16")
        with trained.rehearsal() as rehearse:
            rehearse()
        assert not any(error.numpy().any() for error in trained.sharded.errors)
        losses = steps(trained, 10)
        save_run(tmp_path / "run", trained, TOKENIZER, CORPUS, None)
        losses += steps(trained, 10)
        trained.close()
        again = trainer(ranks, compress="bfloat16")
        load_run(tmp_path / "run", again)
        steps(again, 10)
        again.close()
        return losses, weights(trained), weights(again)

    first, second = on_ranks(2, program)
    assert np.array_equal(first[1], second[1]), "the replicas have drifted apart"
    assert np.array_equal(first[1], first[2]), "a resumed run gives other weights"
    assert first[0] == pytest.approx(alone()[0], rel=2**-8)
    assert not np.array_equal(first[1], alone()[1])
    assert distance(first[1], alone()[1]) > CLOSE, "nothing was rounded"


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_read_every_sample_of_a_batch_once(ranks: int) -> None:
    data = [np.float32(i) for i in range(23)]
    options = {"shuffle": True, "seed": 3, "device": "numpy"}
    whole = [batch.tolist() for batch in ShardedLoader(data, 6, rank=0, ranks=1, **options)]
    loaders = [ShardedLoader(data, 6, rank=r, ranks=ranks, **options) for r in range(ranks)]
    parts = [[batch.tolist() for batch in loader] for loader in loaders]
    assert [[x for p in parts for x in p[i]] for i in range(len(whole))] == whole
    assert sorted(x for batch in whole for x in batch) == [float(x) for x in data]
    assert [
        round(sum(loader.weight(len(batch)) for loader, batch in zip(loaders, batches, strict=True)), 12)
        for batches in zip(*loaders, strict=True)
    ] == [1.0] * len(whole)
    assert max(len(p[0]) for p in parts) - min(len(p[0]) for p in parts) <= 1


def test_the_position_in_the_data_is_resumed_with_other_numbers_of_ranks() -> None:
    data = [np.float32(i) for i in range(24)]
    options = {"shuffle": True, "seed": 3, "device": "numpy"}
    one = ShardedLoader(data, 6, rank=0, ranks=1, **options)
    batches = iter(one)
    next(batches)
    state = one.state_dict()
    rest = [b.tolist() for b in batches]
    two = [ShardedLoader(data, 6, rank=r, ranks=2, **options) for r in range(2)]
    for loader in two:
        loader.load_state_dict(state)
    assert [a.tolist() + b.tolist() for a, b in zip(*two, strict=True)] == rest


def test_a_batch_with_fewer_samples_than_ranks_is_refused() -> None:
    loader = ShardedLoader([np.float32(0)] * 4, 3, rank=0, ranks=2, device="numpy")
    with pytest.raises(ValueError, match="1 samples for 2 ranks"):
        list(loader)
