"""Anomaly mode names the op and the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.autograd import detect_anomaly
from polyhal.hal.device import Device
from polyhal.hal.errors import NonFiniteError


def test_forward(device: Device) -> None:
    x = Tensor([1.0, -1.0], device=device)
    with detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        (x * 2).log()  # the culprit
    text = str(caught.value)
    assert "[log] the result has 1 NaN and 0 infinite of 2 values, its inputs are finite" in text
    assert "test_anomaly.py" in text
    assert "the culprit" in text


def test_an_input_that_was_bad_already(device: Device) -> None:
    x = Tensor([np.inf], device=device)
    with (
        detect_anomaly(),
        pytest.raises(NonFiniteError, match="0 NaN and 1 infinite of 1 values, an input was already not finite"),
    ):
        x + 1


def test_backward(device: Device) -> None:
    x = Tensor([0.0], device=device, requires_grad=True)
    with detect_anomaly():
        y = x.sqrt()  # finite here, not in its gradient
        with pytest.raises(NonFiniteError) as caught:
            y.sum().backward()
    text = str(caught.value)
    assert "[divide]" in text
    assert "in the gradient of sqrt at" in text
    assert "finite here, not in its gradient" in text


def test_outside_the_block_nothing_is_checked(device: Device) -> None:
    x = Tensor([-1.0], device=device)
    with detect_anomaly():
        x + 1
    assert np.isnan(x.log().item())


def test_half_precision_is_checked_too(device: Device) -> None:
    with detect_anomaly(), pytest.raises(NonFiniteError, match=r"\[multiply\]"):
        polyhal.full((2,), 60000.0, "float16", device=device) * 2
