"""The order in which a product of several tensors is contracted, pair by pair, with few multiplications.

Few operands get the best order, by dynamic programming over subsets (Pfeifer, Haegeman, Verstraete 2014); more of them are
contracted greedily, as in opt_einsum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from polyhal.hal.ops.linear_algebra.einsum_labels import Label

LabelSet = frozenset[Label]
Pair = tuple[int, int]
_OPTIMAL_UP_TO = 8
"""Operands. The number of ways to split all subsets grows as 3 to their number."""


@lru_cache(1024)
def contraction_order(
    operands: tuple[LabelSet, ...], output: LabelSet, lengths: tuple[tuple[Label, int], ...]
) -> list[Pair]:
    """Pairs of positions to contract: each time the two are removed and their product is appended."""
    sizes = dict(lengths)
    if len(operands) <= 2:
        return [(0, 1)] * (len(operands) - 1)
    return (_optimal if len(operands) <= _OPTIMAL_UP_TO else _greedy)(operands, output, sizes)


def _volume(labels: Iterable[Label], sizes: Mapping[Label, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def _optimal(operands: Sequence[LabelSet], output: LabelSet, sizes: Mapping[Label, int]) -> list[Pair]:
    count = len(operands)
    everything = (1 << count) - 1
    inside = [frozenset[Label]()] * (everything + 1)
    for subset in range(1, everything + 1):
        lowest = subset & -subset
        inside[subset] = inside[subset ^ lowest] | operands[lowest.bit_length() - 1]
    left = [inside[s] & (inside[everything ^ s] | output) for s in range(everything + 1)]
    for i in range(count):
        left[1 << i] = operands[i]
    best: dict[int, tuple[int, int]] = {1 << i: (0, 0) for i in range(count)}
    for subset in range(1, everything + 1):
        part = (subset - 1) & subset
        while part > subset ^ part:  # each split once
            other = subset ^ part
            cost = best[part][0] + best[other][0] + _volume(left[part] | left[other], sizes)
            if subset not in best or cost < best[subset][0]:
                best[subset] = (cost, part)
            part = (part - 1) & subset
    return _positions(everything, best, count)


def _positions(everything: int, best: Mapping[int, tuple[int, int]], count: int) -> list[Pair]:
    """The pairs of a tree of splits, in the order in which they can be contracted."""
    current = [1 << i for i in range(count)]
    pairs: list[Pair] = []

    def contract(subset: int) -> None:
        part = best[subset][1]
        if not part:
            return
        contract(part)
        contract(subset ^ part)
        i, j = sorted((current.index(part), current.index(subset ^ part)))
        pairs.append((i, j))
        del current[j], current[i]
        current.append(subset)

    contract(everything)
    return pairs


def _greedy(operands: Sequence[LabelSet], output: LabelSet, sizes: Mapping[Label, int]) -> list[Pair]:
    """Contract the pair whose product is smallest in comparison with its factors, and among equals the cheapest."""
    current = list(operands)
    pairs: list[Pair] = []
    while len(current) > 1:
        choices = []
        for j in range(len(current)):
            for i in range(j):
                kept = _kept(current, i, j, output)
                grown = _volume(kept, sizes) - _volume(current[i], sizes) - _volume(current[j], sizes)
                choices.append((grown, _volume(current[i] | current[j], sizes), i, j))
        _, _, i, j = min(choices)
        kept = _kept(current, i, j, output)
        pairs.append((i, j))
        del current[j], current[i]
        current.append(kept)
    return pairs


def _kept(current: Sequence[LabelSet], i: int, j: int, output: LabelSet) -> LabelSet:
    """The labels of the product of two operands that the others or the result need."""
    others = frozenset[Label]().union(*(x for k, x in enumerate(current) if k not in (i, j)))
    return (current[i] | current[j]) & (others | output)
