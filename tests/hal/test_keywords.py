"""Keywords under both names: the Array API's and PyTorch's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import polyhal
from polyhal.hal.ops import PUBLIC
from polyhal.hal.ops.keywords import MISSING


@pytest.fixture
def x() -> polyhal.Tensor:
    return polyhal.tensor(np.arange(6.0).reshape(2, 3), device="numpy")


def test_reductions_accept_pytorchs_keywords(x: polyhal.Tensor) -> None:
    assert polyhal.sum(x, dim=1, keepdim=True).tolist() == [[3.0], [12.0]]
    assert x.sum(dim=0).tolist() == [3.0, 5.0, 7.0]
    assert x.mean(axis=0, keepdim=True).shape == (1, 3)


def test_required_parameters_and_composites_accept_both(x: polyhal.Tensor) -> None:
    assert polyhal.cumsum(x, dim=1).tolist() == polyhal.cumsum(x, axis=1).tolist() == polyhal.cumsum(x, 1).tolist()
    assert polyhal.flatten(x, start_dim=0).shape == (6,)
    assert x.transpose(dim0=0, dim1=1).shape == (3, 2)
    assert x.permute(dims=(1, 0)).shape == (3, 2)


def test_a_required_parameter_after_one_of_two_names_is_still_required(x: polyhal.Tensor) -> None:
    with pytest.raises(TypeError, match="missing 1 required argument: 'axis'"):
        polyhal.cumsum(x)


@pytest.mark.parametrize("function", [polyhal.sum, polyhal.squeeze])
def test_both_names_at_once_are_rejected(function: object, x: polyhal.Tensor) -> None:
    with pytest.raises(TypeError, match="both 'axis' and 'dim'"):
        function(x, axis=0, dim=0)  # type: ignore[operator]


def test_every_public_function_with_an_axis_also_accepts_dim() -> None:
    for name, function in PUBLIC.items():
        parameters = inspect.signature(function).parameters
        if "axis" in parameters and name != "median":  # its `axis` is NumPy's, with another result
            assert parameters["dim"].default is MISSING, name
