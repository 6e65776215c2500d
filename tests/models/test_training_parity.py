"""The first steps of training runs: the losses of PyTorch, with the same weights and batches.

`python -m tests.models.parity training` runs 100 steps on any device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal as ph

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="PyTorch is a development dependency")

STEPS = 8
"""Enough for a recorded step, its check and replays."""
_PLAIN = [name for name in TEST_DEVICES if not name.startswith("numpy:")]


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    """First weights and losses, by task."""
    from tests.models.parity.training import TASKS, torch_losses

    return {name: torch_losses(task, STEPS) for name, task in TASKS.items()}


@pytest.mark.parametrize("device_name", _PLAIN)
@pytest.mark.parametrize("name", ["LSTM", "CNN", "GPT", "VAE", "DDPM"])
def test_captured_losses_agree_with_pytorch(name: str, device_name: str, references: dict[str, Any]) -> None:
    from tests.models.parity.training import TASKS, own_losses

    first, expected = references[name]
    losses = own_losses(TASKS[name], first, STEPS, ph.Device(device_name), captured=True)
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    np.testing.assert_allclose(losses[:3], expected[:3], rtol=1e-4)


@pytest.mark.parametrize("name", ["LSTM", "CNN", "GPT", "VAE", "DDPM"])
def test_eager_losses_agree_with_pytorch(name: str, references: dict[str, Any]) -> None:
    from tests.models.parity.training import TASKS, own_losses

    first, expected = references[name]
    losses = own_losses(TASKS[name], first, 3, ph.Device("numpy"), captured=False)
    np.testing.assert_allclose(losses, expected[:3], rtol=1e-4)
