"""Datasets, splits, collation and token windows."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyhal as ph
from polyhal.data import Subset, TensorDataset, TokenWindows, collate, random_split
from polyhal.hal.errors import ShapeError
from polyhal.random import Generator


def test_tensor_dataset() -> None:
    data = TensorDataset(ph.tensor([[1.0, 2], [3, 4], [5, 6]], device="numpy"), np.array([7, 8, 9]))
    assert len(data) == 3
    assert data[1][0].tolist() == [3, 4]
    x, y = data.batch(np.array([2, 0]))
    assert x.tolist() == [[5, 6], [1, 2]]
    assert y.tolist() == [9, 7]
    with pytest.raises(ShapeError, match="equal first axes"):
        TensorDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="no arrays"):
        TensorDataset()


def test_random_split() -> None:
    data = TensorDataset(np.arange(10))
    parts = random_split(data, [7, 3], Generator(0))
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(int(p[i][0]) for p in parts for i in range(len(p))) == list(range(10))
    again = random_split(data, [7, 3], Generator(0))
    assert parts[0].indices.tolist() == again[0].indices.tolist()
    assert [len(p) for p in random_split(data, [0.5, 0.25, 0.25], Generator(1))] == [6, 2, 2]
    with pytest.raises(ValueError, match="for 10 samples"):
        random_split(data, [7, 4])
    nested = Subset(parts[0], [0, 1])
    assert nested.batch(np.array([1]))[0].tolist() == [parts[0].indices[1]]


def test_collate() -> None:
    point = namedtuple("point", "x y")
    out = collate(
        [{"a": (1, 2.5), "n": "x", "p": point(np.zeros(2), 1)}, {"a": (3, 4.5), "n": "y", "p": point(np.ones(2), 2)}]
    )
    assert out["a"][0].tolist() == [1, 3]
    assert out["a"][1].dtype == np.float32
    assert out["n"] == ["x", "y"]
    assert out["p"].x.shape == (2, 2)
    assert collate([ph.zeros((2,), device="numpy")] * 3).shape == (3, 2)
    with pytest.raises(ShapeError, match="one shape"):
        collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(TypeError, match="samples have the type object"):
        collate([object()])


def test_strided_windows() -> None:
    tokens = np.arange(11, dtype=np.uint16)
    data = TokenWindows(tokens, 4)
    assert len(data) == 2
    x, y = data[1]
    assert x.tolist() == [4, 5, 6, 7]
    assert y.tolist() == [5, 6, 7, 8]
    assert x.dtype == np.int32
    assert len(TokenWindows(tokens, 4, stride=1)) == 7
    assert len(TokenWindows(tokens, 10)) == 1
    with pytest.raises(ShapeError, match="11 tokens"):
        TokenWindows(tokens, 11)
    with pytest.raises(TypeError, match="expected a vector of integers"):
        TokenWindows(np.zeros(5), 2)


@given(count=st.integers(3, 60), length=st.integers(1, 8), stride=st.integers(1, 9), seed=st.integers(0, 99))
def test_windows_hold_consecutive_tokens(count: int, length: int, stride: int, seed: int) -> None:
    if length >= count:
        return
    tokens = np.arange(count) * 3
    for data in (TokenWindows(tokens, length, stride), TokenWindows(tokens, length, samples=5, seed=seed)):
        x, y = data.batch(np.arange(len(data)))
        assert x.shape == y.shape == (len(data), length)
        assert (y - x == 3).all()
        assert (np.diff(x, axis=1) == 3).all()
        for i in range(len(data)):
            assert data[i][0].tolist() == x[i].tolist()
            assert data[i][1].tolist() == y[i].tolist()
