"""Trains a tiny model on all ranks and writes the results of rank 0: `training.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from polyhal.training import Ranks
from polyhal.training.checkpoint import load_run, save_run

sys.path.insert(0, str(Path(__file__).parents[2]))
from distributed.tiny import CORPUS, TOKENIZER, steps, trainer, weights

folder = Path(sys.argv[1])
ranks = Ranks.joined()
found: dict[str, object] = {}


def keep(name: str, value: object) -> None:
    """Record a result of rank 0; the other ranks must have equal weights."""
    if isinstance(value, np.ndarray):
        mine = value.view(np.uint8).ravel()
        everyones = np.empty(mine.size * ranks.size, np.uint8)
        ranks.group.all_gather(mine, everyones, [mine.size] * ranks.size)
        assert (everyones.reshape(ranks.size, -1) == mine).all(), "the replicas have drifted apart"
    found[name] = value


def check_repetition() -> None:
    """Check that a second run and a resumed one are bit-identical, with dropout and gradients in half precision."""
    dropped = []
    for _ in range(2):
        again = trainer(ranks, dropout=0.2, compress="bfloat16")
        steps(again, 3)
        save_run(folder / "checkpoint", again, TOKENIZER, CORPUS, None)
        again.step()  # a loss that is saved before it is reported
        save_run(folder / "checkpoint", again, TOKENIZER, CORPUS, None)
        losses = steps(again, 3)
        dropped.append((weights(again), losses))
    assert (dropped[0][0] == dropped[1][0]).all(), "another run gives other weights"
    other = trainer(ranks, dropout=0.2, compress="bfloat16")
    load_run(folder / "checkpoint", other)
    losses = steps(other, 3)
    assert losses == dropped[0][1], (losses, dropped[0][1])
    assert (weights(other) == dropped[0][0]).all(), "a resumed run gives other weights"


first = trainer(ranks)
keep("losses", steps(first, 20))
keep("weights", weights(first))
keep("validation", first.evaluate())
check_repetition()
if ranks.first:
    np.savez(folder / "results.npz", **found)  # type: ignore[arg-type]
