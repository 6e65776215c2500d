"""Programs for WebGPU run on a device of wgpu with WebGPU's default limits, and compute what Python computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyhal import export
from tests.export.player import Player
from tests.export.steps import TrainingStep

pytestmark = pytest.mark.slow  # a software adapter compiles the kernels for some seconds


@pytest.fixture(scope="module")
def adapter() -> Any:
    from polyhal.backends.wgpu import discovery

    try:
        return discovery.devices()[0].native
    except RuntimeError as error:
        pytest.skip(str(error))


def test_a_training_step(adapter: Any) -> None:
    """Dropout, an op in place in one binding, numbers of Adam and random streams, over four steps.

    Single precision in two orders differs by about 1e-6 of a value; a step of Adam, 1e-2, by some 1e-5 where a gradient nearly
    cancels.
    """
    training = TrainingStep(dropout=0.25)
    program = export.record_program(training.step, "described:webgpu,record", "webgpu", outputs=["loss"])
    player = Player(program, adapter)
    x, y = training.x.numpy(), training.y.numpy()
    losses = [float(player.run(x=x, y=y)["loss"]) for _ in range(4)]
    np.testing.assert_allclose(losses, [training.run() for _ in range(4)], rtol=1e-4)
    weights = training.model.state_dict()
    for tensor in program.state:
        if tensor.name in weights:
            np.testing.assert_allclose(player.read(tensor), weights[tensor.name].numpy(), atol=1e-3)
