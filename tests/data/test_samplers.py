"""Samplers, combined datasets and the loader's arguments, beside PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from polyhal import Generator
from polyhal.utils import data as ours

theirs = pytest.importorskip("torch.utils.data")
DATA = list(range(7))


def loaded(loader: Any) -> list[Any]:
    return [b.tolist() for b in loader]


def test_every_name_is_pytorchs() -> None:
    assert set(ours.__all__) <= set(theirs.__all__)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 9])
def test_batches_of_a_sampler(size: int, drop: bool) -> None:
    ours_, theirs_ = (m.BatchSampler(m.SequentialSampler(DATA), size, drop) for m in (ours, theirs))
    assert list(ours_) == list(theirs_)
    assert len(ours_) == len(theirs_)
    reverse = DATA[::-1]
    a = ours.DataLoader(DATA, size, sampler=reverse, drop_last=drop, device="numpy")
    b = theirs.DataLoader(DATA, size, sampler=reverse, drop_last=drop)
    assert loaded(a) == loaded(b)
    assert len(a) == len(b)


def test_batch_samplers_and_no_batches() -> None:
    batches = [[0, 3], [1], [6, 6, 2]]
    assert loaded(ours.DataLoader(DATA, batch_sampler=batches, device="numpy")) == batches
    assert len(ours.DataLoader(DATA, batch_sampler=batches, device="numpy")) == 3
    rows = np.arange(6.0).reshape(3, 2)
    assert loaded(ours.DataLoader(rows, None, device="numpy")) == rows.tolist()
    assert list(ours.DataLoader(["a", "b"], None, device="numpy")) == ["a", "b"]


def test_positions_with_a_sampler_resume() -> None:
    loader = ours.DataLoader(DATA, 2, sampler=DATA[::-1], device="numpy")
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    again = ours.DataLoader(DATA, 2, sampler=DATA[::-1], device="numpy")
    again.load_state_dict(state)
    assert loaded(again) == loaded(iterator)


def test_random_samplers() -> None:
    assert sorted(ours.RandomSampler(DATA)) == DATA
    twice = list(ours.RandomSampler(DATA, num_samples=14))
    assert sorted(twice[:7]) == sorted(twice[7:]) == DATA
    drawn = list(ours.RandomSampler(DATA, replacement=True, num_samples=1000, generator=Generator(1)))
    assert np.bincount(drawn, minlength=7).min() > 100
    assert sorted(ours.SubsetRandomSampler([3, 5, 9])) == [3, 5, 9]
    a, b = (list(ours.RandomSampler(DATA, generator=Generator(3))) for _ in range(2))
    assert a == b


@pytest.mark.parametrize("replacement", [False, True])
def test_weighted_samplers_follow_their_weights(replacement: bool) -> None:
    weights = [0.0, 1.0, 3.0, 6.0]
    count = 4000 if replacement else 1
    draws = 1 if replacement else 4000
    generator = Generator(2)
    drawn = [i for _ in range(draws) for i in ours.WeightedRandomSampler(weights, count, replacement, generator)]
    # 4000 draws: the standard deviation of a frequency is below 0.008.
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, np.array(weights) / 10, atol=0.04)
    if not replacement:
        assert sorted(ours.WeightedRandomSampler(weights, 3, False)) == [1, 2, 3]
        with pytest.raises(ValueError, match="replacement=True"):
            ours.WeightedRandomSampler(weights, 4, False)


class Stream(ours.IterableDataset):
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return iter(range(self.n))

    def __len__(self) -> int:
        return self.n


@pytest.mark.parametrize("prefetch", [0, 2])
def test_streams(prefetch: int) -> None:
    chain = ours.ChainDataset([Stream(3), Stream(4)])
    loader = ours.DataLoader(chain, 3, device="numpy", prefetch=prefetch)
    assert loaded(loader) == [[0, 1, 2], [0, 1, 2], [3]]
    assert loaded(loader) == [[0, 1, 2], [0, 1, 2], [3]]
    assert loaded(ours.DataLoader(chain, 3, drop_last=True, device="numpy")) == [[0, 1, 2], [0, 1, 2]]
    assert len(chain) == 7
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert loaded(loader) == [[0, 1, 2], [3]]


def test_combined_datasets() -> None:
    for m in (ours, theirs):
        joined = m.ConcatDataset([[1, 2], [3], [4, 5, 6]])
        assert [joined[i] for i in range(-6, 6)] == [1, 2, 3, 4, 5, 6] * 2
        with pytest.raises((IndexError, ValueError)):
            joined[-7]
        stacked = m.StackDataset(DATA, DATA[::-1])
        assert stacked[1] == (1, 5)
        assert m.StackDataset(a=DATA, b=DATA[::-1])[2] == {"a": 2, "b": 4}
        assert len(stacked) == 7
        with pytest.raises(ValueError):
            m.StackDataset(DATA, [1])


@pytest.mark.parametrize(
    "arguments",
    [
        {"sampler": DATA, "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "shuffle": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
    ],
    ids=str,
)
def test_arguments_that_exclude_each_other_are_refused_as_in_pytorch(arguments: dict[str, Any]) -> None:
    for loader in (theirs.DataLoader, ours.DataLoader):
        with pytest.raises(ValueError):
            loader(DATA, **arguments)


def test_streams_take_no_order() -> None:
    for arguments in ({"shuffle": True}, {"sampler": DATA}):
        with pytest.raises(ValueError, match="stream"):
            ours.DataLoader(Stream(3), **arguments)


def test_more_samples_than_fit_into_memory_are_drawn_on_demand() -> None:
    count = 10**10
    for sampler in (ours.RandomSampler(DATA, True, count), ours.WeightedRandomSampler([1.0] * 10, count)):
        assert len(sampler) == count
        assert 0 <= next(iter(sampler)) < 10
        (first,) = next(iter(ours.DataLoader(ours.TensorDataset(np.arange(10)), 4, sampler=sampler, device="numpy")))
        assert first.shape == (4,)


def test_the_first_part_equals_the_beginning_of_a_drawing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(ours.RandomSampler(DATA, True, 8, Generator(3)))
    monkeypatch.setattr("polyhal.data.samplers._DRAWN_AT_ONCE", 5)
    assert len(parts := list(ours.RandomSampler(DATA, True, 8, Generator(3)))) == 8
    assert set(parts) <= set(range(len(DATA)))
    assert len(whole) == 8


def test_a_sampler_that_exceeds_its_length_is_drawn_on_demand() -> None:
    class Endless:
        """A sampler of length three whose iterator is infinite."""

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return itertools.count()

    loader = ours.DataLoader(ours.TensorDataset(np.arange(10)), 1, sampler=Endless(), device="numpy")
    assert [batch.tolist() for (batch,) in itertools.islice(loader, 5)] == [[0], [1], [2], [3], [4]]
