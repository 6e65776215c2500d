"""Residual networks: the same numbers as PyTorch, torchvision's names and sizes, and saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.models import BasicBlock, Bottleneck, ResNet, resnet18, resnet50
from polyhal.nn import functional as F

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")

BOUND = 1e-4


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_outputs_and_gradients_agree_with_pytorch(device: ph.Device, block: Any) -> None:
    from tests.models.parity.comparison import compare
    from tests.models.parity.torch_resnet import TorchResNet

    torch.manual_seed(0)
    theirs = TorchResNet((1, 2), 10, width=8, bottleneck=block is Bottleneck)
    x = np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(np.float32)
    found = compare(ResNet(block, (1, 2), 10, width=8, device=device), theirs, [x], device)
    assert max(found.outputs, found.gradients) < BOUND, found


def test_names_and_sizes_match_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of entries and parameters as in torchvision's documentation of its weights."""
    for layer in (ResNet, ph.nn.Conv2d, ph.nn.Linear):  # drawing weights takes seconds
        monkeypatch.setattr(layer, "reset_parameters", lambda *_: None)
    small, large = resnet18(device="numpy"), resnet50(device="numpy")
    assert [len(small.state_dict()), small.count_parameters()] == [122, 11_689_512]
    assert [len(large.state_dict()), large.count_parameters()] == [320, 25_557_032]
    state = large.state_dict()
    assert state["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert state["layer4.2.bn3.num_batches_tracked"].shape == ()
    assert state["layer2.0.conv2.weight"].shape == (128, 128, 3, 3)
    assert large.layer2[0].conv2.stride == (2, 2)
    assert state["fc.weight"].shape == (1000, 2048)


def test_small_images_keep_their_size(device: ph.Device) -> None:
    model = ResNet(BasicBlock, (1, 1), 10, 1, 4, small_images=True, zero_init_residual=True, device=device)
    x = ph.randn((2, 1, 8, 8), device=device)
    assert model(x).shape == (2, 10)
    assert model.layer1(model.conv1(x)).shape == (2, 4, 8, 8)
    first = model.layer1[0]
    shown = ph.relu(x.expand(2, 4, 8, 8))
    np.testing.assert_array_equal(first(shown).numpy(), shown.numpy())
    with pytest.raises(ValueError, match="5 stages"):
        ResNet(BasicBlock, (1, 1, 1, 1, 1), device=device)


def test_a_saved_model_is_made_again(numpy_device: ph.Device, tmp_path: Path) -> None:
    model = ResNet(Bottleneck, (1, 1), 3, width=4, device=numpy_device).eval()
    ph.save(model, tmp_path / "model.safetensors")
    again = ph.load(tmp_path / "model.safetensors", device="numpy")
    x = ph.randn((2, 3, 32, 32), device=numpy_device)
    np.testing.assert_array_equal(again(x).numpy(), model(x).numpy())


def test_a_captured_step_learns_like_an_eager_one(device: ph.Device) -> None:
    """Running statistics included."""
    losses, statistics = [], []
    x = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype(np.float32)
    y = np.array([0, 1, 2, 1])
    for captured in (False, True):
        ph.manual_seed(0)
        model = ResNet(BasicBlock, (1, 1), 3, 1, 4, small_images=True, device=device)
        optimizer = ph.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x: ph.Tensor, y: ph.Tensor, model: ResNet = model, optimizer: Any = optimizer) -> ph.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = ph.jit(step) if captured else step
        arguments = ph.tensor(x, device=device), ph.tensor(y, device=device)
        losses.append([run(*arguments).item() for _ in range(5)])
        statistics.append(model.bn1.running_mean.numpy())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    np.testing.assert_allclose(statistics[1], statistics[0], rtol=1e-4, atol=1e-6)
    assert losses[0][-1] < losses[0][0]
