"""The outline of a captured step: modules, the first result, live bytes, and gradients."""

from __future__ import annotations

import polyhal as ph
from polyhal import nn
from polyhal.profiler import StepProfile, outline


def test_the_outline_attributes_a_training_step_to_modules_and_gradients() -> None:
    device = ph.Device("sim:teaching")
    model = nn.Sequential(nn.Linear(4, 8, device=device), nn.Tanh(), nn.Linear(8, 2, device=device))
    parameters = list(model.parameters())
    x = ph.ones(16, 4, device=device)

    def step() -> ph.Tensor:
        for p in parameters:
            p.grad = None
        loss = model(x).square().mean()
        loss.backward()
        return loss

    captured = ph.jit(step, warm_up=False)
    captured()
    found = outline(captured, device)
    assert {"0", "2"} <= set(found.modules[: found.backward])
    assert {leaf.shape for leaf, _ in found.gradients} == {p.shape for p in parameters}
    completed = {leaf.shape: at for leaf, at in found.gradients}
    assert found.backward <= completed[(2, 8)] < completed[(8, 4)]
    hidden = 16 * 8 * 4
    assert hidden <= found.live.max() <= 4 * hidden
    assert found.fragmentation >= 1
    with StepProfile() as profile:
        captured()
    positions = [found.position(launch.node) for launch in profile.launches]
    assert positions == sorted(positions)
    assert set(positions) <= set(range(len(found.modules)))
    assert found.position(None) is None
