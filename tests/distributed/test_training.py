"""Training on several ranks is training on one; checkpoints go on with any number of ranks."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from polyhal.distributed import ShardedLoader
from polyhal.hal.errors import CorruptFileError
from polyhal.training.checkpoint import load_run

from .conftest import PROGRAMS, Launch
from .tiny import steps, trainer, weights

CLOSE = 1e-5
"""Relative difference of sums of float32 in another order, after 20 steps."""


@functools.cache
def alone() -> tuple[list[float], np.ndarray, float | None]:
    """Losses, weights and validation loss of one rank."""
    trained = trainer()
    losses = steps(trained, 20)
    trained.close()
    return losses, weights(trained), trained.evaluate()


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Relative distance of two vectors."""
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


def trained(launch: Launch, ranks: int, folder: Path, *before: Path) -> Path:
    done = launch("-n", ranks, PROGRAMS / "training.py", folder, *before)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def check_like_one(folder: Path) -> None:
    losses, expected, validation = alone()
    results = np.load(folder / "results.npz")
    assert np.allclose(results["losses"], losses, rtol=CLOSE, atol=0)
    assert np.isclose(results["validation"], validation, rtol=CLOSE, atol=0)
    assert distance(results["weights"], expected) < CLOSE


def test_two_ranks_train_like_one(launch: Launch, tmp_path: Path) -> None:
    check_like_one(trained(launch, 2, tmp_path))


def test_four_ranks_train_like_one_and_fewer_go_on_from_their_checkpoint(launch: Launch, tmp_path: Path) -> None:
    """The program also checks that another run, and one that is resumed, give the same bits, with dropout."""
    for name in ("four", "two"):
        (tmp_path / name).mkdir()
    four = trained(launch, 4, tmp_path / "four")
    check_like_one(four)
    check_damage_is_named(four)
    two = trained(launch, 2, tmp_path / "two", four / "checkpoint")
    _, expected, _ = alone()
    results = np.load(two / "results.npz")
    assert results["done"] == 16
    assert distance(results["weights"], expected) < CLOSE
    one = trainer()
    load_run(two / "checkpoint", one)
    steps(one, 4)
    one.close()
    assert distance(weights(one), expected) < CLOSE


def check_damage_is_named(folder: Path) -> None:
    listed = json.loads((folder / "checkpoint" / "state.json").read_text(encoding="utf-8"))
    files = sorted((folder / "checkpoint.ranks").iterdir())
    assert len(files) == 4, "files of earlier checkpoints are removed"
    assert all(f.name in json.dumps(listed) for f in files)
    content = files[2].read_bytes()
    files[2].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match="rank-00002-of-00004"):
        load_run(folder / "checkpoint", trainer())
    files[2].unlink()
    with pytest.raises(CorruptFileError, match="is missing"):
        load_run(folder / "checkpoint", trainer())
    files[2].write_bytes(content)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_read_every_sample_of_a_batch_once(ranks: int) -> None:
    data = [np.float32(i) for i in range(23)]
    options = {"shuffle": True, "seed": 3, "device": "numpy"}
    whole = [batch.tolist() for batch in ShardedLoader(data, 6, rank=0, ranks=1, **options)]
    loaders = [ShardedLoader(data, 6, rank=r, ranks=ranks, **options) for r in range(ranks)]
    parts = [[batch.tolist() for batch in loader] for loader in loaders]
    assert [[x for p in parts for x in p[i]] for i in range(len(whole))] == whole
    assert sorted(x for batch in whole for x in batch) == [float(x) for x in data]
    assert [round(sum(loader.weight(len(batch)) for loader, batch in zip(loaders, batches, strict=True)), 12)
            for batches in zip(*loaders, strict=True)] == [1.0] * len(whole)  # fmt: skip
    assert max(len(p[0]) for p in parts) - min(len(p[0]) for p in parts) <= 1


def test_the_position_in_the_data_goes_on_with_other_ranks() -> None:
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
