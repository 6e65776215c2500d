"""Split-K: dividing the terms of reductions among workers if there are too few results to occupy a device.

Each split computes a partial result from consecutive terms; a second launch reduces these in a fixed order, so that results are
reproducible. The split depends on shapes and the device only.

Source: Osama et al., 2023, "Stream-K: Work-centric parallel decomposition for dense matrix-matrix multiplication", section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up


@dataclass(frozen=True, slots=True)
class SplitK:
    """A division of the terms of every result."""

    splits: int
    """Partial results per result; 1 means that no second launch is needed."""
    terms: int
    """Terms of each split; the last one may have fewer."""


def split_count(tasks: int, workers: int, *limits: int, fill: bool = False) -> int:
    """Return the number of splits for each of `tasks` tasks, at least 1 and at most each of `limits`.

    The total is at most `workers`, or with `fill` at least `workers`.
    """
    splits = ceil_div(workers, tasks) if fill else workers // tasks
    return max(1, min((splits, *limits)))


def split_k(
    terms: int, tasks: int, workers: int, *limits: int, min_terms: int = 1, multiple: int = 1, fill: bool = False
) -> SplitK:
    """Split `terms` terms of each task, see `split_count`.

    A split has at least `min_terms` terms, since shorter splits are slower; all but the last have a multiple of `multiple`.
    """
    splits = split_count(tasks, workers, terms // min_terms, *limits, fill=fill)
    each = round_up(ceil_div(terms, splits), multiple)
    return SplitK(ceil_div(terms, each), each)
