"""The U-Net and the diffusion process: the same numbers as PyTorch and the paper, and sampling."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import ShapeError
from polyhal.models import DDPM, UNet, from_diffusers_state

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")

BOUND = 1e-4


def small(device: ph.Device, padding: int = 1) -> UNet:
    return UNet(1, None, (8, 16), (False, True), 1, 4, downsample_padding=padding, device=device)


@pytest.mark.parametrize("padding", [0, 1])
def test_outputs_and_gradients_agree_with_pytorch(device: ph.Device, padding: int) -> None:
    from tests.models.parity.comparison import compare
    from tests.models.parity.torch_unet import TorchUNet

    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype(np.float32)
    theirs = TorchUNet(1, (8, 16), (False, True), 1, 4, padding)
    found = compare(small(device, padding), theirs, [x, np.array([0, 3, 77, 999])], device)
    assert max(found.outputs, found.gradients) < BOUND, found


def test_names_match_diffusers() -> None:
    """Keys of `UNet2DModel`, and those of weights that its old versions saved."""
    model = UNet(3, None, (8, 16), (False, True), 2, 4, attention_head_dim=8, device="numpy")
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    keys = """
        conv_in.weight time_embedding.linear_1.weight down_blocks.0.resnets.1.norm1.weight conv_norm_out.weight conv_out.bias
        down_blocks.0.downsamplers.0.conv.bias down_blocks.1.resnets.0.conv_shortcut.weight
        down_blocks.1.attentions.1.to_out.0.weight mid_block.attentions.0.group_norm.bias mid_block.resnets.1.conv2.weight
        up_blocks.0.resnets.2.time_emb_proj.weight up_blocks.0.upsamplers.0.conv.weight
    """
    assert set(keys.split()) <= set(state)
    assert "down_blocks.1.downsamplers.0.conv.weight" not in state
    old = {key.replace("to_q", "query").replace("to_out.0", "proj_attn"): value for key, value in state.items()}
    assert set(old) != set(state)
    assert set(from_diffusers_state(old)) == set(state)


def test_levels_of_noise() -> None:
    """The variances of the paper: signal and noise sum to 1, and after 1000 steps only noise is left (4e-5 of signal)."""
    process = DDPM(device="numpy")
    signal, noise = process.signal.numpy().astype(np.float64), process.noise.numpy().astype(np.float64)
    np.testing.assert_allclose(signal**2 + noise**2, 1, rtol=1e-6)
    assert signal[0] ** 2 == pytest.approx(1 - 1e-4, rel=1e-6)
    assert signal[-1] ** 2 == pytest.approx(4.0e-5, rel=0.02)
    cosine = DDPM(100, "cosine", device="numpy").signal.numpy()
    assert cosine[49] ** 2 == pytest.approx(np.cos((0.5 + 0.008) / 1.008 * np.pi / 2) ** 2, rel=1e-3)
    with pytest.raises(ValueError, match="expected linear or cosine"):
        DDPM(10, "quadratic", device="numpy")  # type: ignore[arg-type]


def test_denoising_with_the_true_noise_leads_back(device: ph.Device) -> None:
    """For one data point the best model is known, and each step's mean is the formula (7) of the paper."""
    process = DDPM(20, beta_start=0.01, beta_end=0.3, device=device)
    data = ph.tensor(np.array([[0.5, -1.0]], np.float32), device=device)

    def model(x: ph.Tensor, t: ph.Tensor) -> ph.Tensor:
        return (x - process.signal[t].reshape(-1, 1) * data) / process.noise[t].reshape(-1, 1)

    ph.manual_seed(0)
    samples = process.sample(model, (5, 2))
    np.testing.assert_allclose(samples.numpy(), np.tile(data.numpy(), (5, 1)), atol=1e-5)
    noise = ph.randn((3, 2), device=device)
    t = ph.tensor([0, 7, 19], device=device)
    assert process.loss(model, data.expand(3, 2), t, noise).item() < 1e-10


def test_sampling_repeats_with_a_seed(device: ph.Device) -> None:
    from polyhal.random import Generator

    process, model = DDPM(3, device=device), small(device).eval()
    first, second = (process.sample(model, (2, 1, 4, 4), Generator(seed)).numpy() for seed in (5, 5))
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()


def test_a_captured_loss_draws_new_times_and_noise(device: ph.Device) -> None:
    process, model = DDPM(10, device=device), small(device)
    x = ph.zeros((2, 1, 4, 4), device=device)
    step = ph.jit(lambda x: process.loss(model, x), warm_up=False)
    ph.manual_seed(3)
    captured = [step(x).item() for _ in range(3)]
    ph.manual_seed(3)
    np.testing.assert_allclose(captured, [process.loss(model, x).item() for _ in range(3)], rtol=1e-4)
    assert len(set(captured)) == 3


def test_wrong_shapes_are_refused(numpy_device: ph.Device) -> None:
    model = small(numpy_device)
    with pytest.raises(ShapeError, match="divisible by 2"):
        model(ph.zeros((1, 1, 5, 4), device="numpy"), ph.zeros((1,), "int32", "numpy"))
    with pytest.raises(ValueError, match="attention has 1 entries"):
        UNet(1, None, (8, 16), (True,), device="numpy")
