"""Programs for WebGPU run on a device of wgpu with WebGPU's default limits, and compute what Python computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import export, nn
from polyhal.nn import functional as F
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


def test_float16_weights_and_arithmetic(adapter: Any) -> None:
    """A program with shader-f16, and one that only stores 16-bit floats, have the numbers of the wgpu device.

    All round results of each layer to 11 bits, 2**-11 of a value, in different orders of sums: two roundings may differ.
    """
    if "shader-f16" not in adapter.features:
        pytest.skip(f"{adapter.info['device']} has no shader-f16")
    polyhal.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8)).to("wgpu").to(polyhal.float16)
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float16)
    step = polyhal.jit(lambda x: F.softmax(model(x), -1))
    with polyhal.no_grad():
        for _ in range(3):
            expected = step(polyhal.tensor(x, device="wgpu")).numpy()
    program = export.record_program(step, "described:webgpu,record,f16", "webgpu", inputs=["x"], outputs=["y"])
    assert program.features == ("shader-f16",)
    assert {t.dtype for t in (*program.inputs, *program.outputs, *program.state)} == {"float16"}
    assert any("f16" in k.source.partition("enable f16;")[2] for k in program.kernels)
    found = Player(program, adapter).run(x=x)["y"]
    stored = export.record_program(step, "described:webgpu,record", "webgpu", inputs=["x"], outputs=["y"])
    assert stored.features == ()
    assert {t.dtype for t in stored.state} == {"float16"}
    assert not any("enable f16;" in k.source for k in stored.kernels)
    for values in (found, Player(stored, adapter).run(x=x)["y"]):
        assert values.dtype == np.float16
        np.testing.assert_allclose(
            values.astype(np.float32), expected.astype(np.float32), rtol=4 * 2.0**-11, atol=2.0**-14
        )
