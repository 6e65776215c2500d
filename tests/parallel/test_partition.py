"""Models are split by time and memory, and then train as they do on one device."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from groups import OPENCL

import polyhal
from polyhal import Device, Tensor, nn, optim
from polyhal.hal.errors import OutOfMemoryError
from polyhal.models import (
    GPT,
    Bert,
    BertConfig,
    Decoder,
    DecoderConfig,
    GPTConfig,
    resnet18,
)
from polyhal.nn import functional as F
from polyhal.parallel import ModelPartition, partition
from polyhal.parallel.device_rates import DeviceRates, device_rates

RATES = DeviceRates(flops=1e9, bandwidth=1e9, link=1e9, launch=0.0, memory=1 << 30)


def words(*shape: int, seed: int = 0) -> Tensor:
    return polyhal.tensor(np.random.default_rng(seed).integers(0, 20, shape), device="numpy")


def images(*shape: int) -> Tensor:
    return polyhal.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32), device="numpy")


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape((-1, logits.shape[-1])), targets.reshape((-1,)))


def gpt() -> tuple[nn.Module, Any, Any, Any]:
    config = GPTConfig(vocab_size=20, block_size=8, n_layer=3, n_head=2, n_embd=8)
    return GPT(config, device="numpy"), words(4, 8), words(4, 8, seed=1), cross_entropy


def llama() -> tuple[nn.Module, Any, Any, Any]:
    config = DecoderConfig(20, 8, 16, 3, 2, 1, 16)
    return Decoder(config, device="numpy"), words(4, 8), words(4, 8, seed=1), cross_entropy


def bert() -> tuple[nn.Module, Any, Any, Any]:
    config = BertConfig(20, 8, 3, 2, 16, 16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    keep = polyhal.tensor(np.arange(8) < np.array([[8], [5], [8], [3]]), device="numpy")
    loss: Callable[..., Tensor] = lambda outputs, y: cross_entropy(outputs[1], y % 8)  # noqa: E731
    inputs = {"input_ids": words(4, 8), "attention_mask": keep}
    return Bert(config, device="numpy"), inputs, words(4, seed=1), loss


def resnet() -> tuple[nn.Module, Any, Any, Any]:
    return resnet18(num_classes=20, width=4, device="numpy"), images(4, 3, 32, 32), words(4), cross_entropy


def sequence() -> tuple[nn.Module, Any, Any, Any]:
    layers = [nn.Sequential(nn.Linear(6, 6, device="numpy"), nn.Tanh()) for _ in range(3)]
    return nn.Sequential(*layers), images(4, 6), images(4, 6) * 2, F.mse_loss


@pytest.mark.parametrize("make", [gpt, llama, bert, resnet, sequence], ids=lambda f: f.__name__)
def test_models_are_split_without_changes(make: Callable[[], tuple[nn.Module, Any, Any, Any]]) -> None:
    """Gradients equal the unsplit model's, up to roundings of 256 terms, of the largest gradient: the gradient of a key's bias,

    to which softmax is blind, is the rounding of much larger numbers. Batch norm sees micro-batches, so the ResNet has one.
    """
    polyhal.manual_seed(0)
    model, inputs, targets, loss_function = make()
    whole = copy.deepcopy(model)
    count = 1 if make is resnet else 2
    expected = loss_function(whole(**inputs) if isinstance(inputs, dict) else whole(inputs), targets)
    expected.backward()
    devices = ["numpy", "sim", OPENCL[0] if OPENCL and make is gpt else "numpy"]
    found = partition(model, inputs, devices, count, targets=targets, loss_function=loss_function, rates=[RATES] * 3)
    pipeline = found.pipeline()
    loss = pipeline.forward_backward(inputs, targets, loss_function)
    eps = 256 * np.finfo(np.float32).eps
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=eps)
    largest = max(float(np.abs(q.grad.numpy()).max()) for q in whole.parameters() if q.grad is not None)
    for (name, p), (_, q) in zip(model.named_parameters(), whole.named_parameters(), strict=True):
        if q.grad is None:
            assert p.grad is None, name
            continue
        assert p.grad is not None, name
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=0, atol=eps * largest, err_msg=name)


def blocks(count: int, width: int = 32) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(width, width, device="numpy") for _ in range(count)])


def sizes(found: ModelPartition) -> list[int]:
    """Return the number of layers in each stage of `blocks`."""
    begins = [0, *map(int, found.cuts), len(list(found.model.children()))]
    return [b - a for a, b in itertools.pairwise(begins)]


def test_equal_devices_run_equal_numbers_of_layers() -> None:
    found = partition(blocks(12), images(64, 32), ["numpy"] * 4, 8, rates=[RATES] * 4)
    assert sizes(found) == [3, 3, 3, 3]


def test_numbers_of_layers_follow_speed() -> None:
    """A device with three times the speed runs three times the layers."""
    fast = DeviceRates(3e9, 3e9, 1e12, 0.0, 1 << 30)
    slow = DeviceRates(1e9, 1e9, 1e12, 0.0, 1 << 30)
    found = partition(blocks(8), images(64, 32), ["numpy"] * 2, 8, rates=[fast, slow])
    assert sizes(found) == [6, 2]
    assert found.stages[0].seconds == pytest.approx(found.stages[1].seconds, rel=0.1)


def test_a_device_that_would_slow_the_step_down_is_left_out() -> None:
    useless = DeviceRates(1e3, 1e3, 1e3, 0.0, 1 << 30)
    found = partition(blocks(8), images(64, 32), ["numpy", "sim", "numpy"], 8, rates=[RATES, useless, RATES])
    assert [d.name for d in found.devices] == ["numpy", "numpy"]


def test_a_model_that_is_not_worth_a_copy_stays_on_one_device() -> None:
    distant = DeviceRates(1e9, 1e9, 1e12, 0.0, 1 << 30, latency=1.0)
    assert len(partition(blocks(4), images(8, 32), ["numpy"] * 2, 4, rates=[distant] * 2).stages) == 1


def test_cuts_avoid_large_activations() -> None:
    """Time would suggest a cut in the middle, where activations are large; a slow link moves it."""
    wide = nn.Sequential(*[nn.Linear(a, b, device="numpy") for a, b in ((8, 8), (8, 256), (256, 8), (8, 8))])
    slow_link = DeviceRates(1e9, 1e9, 1e5, 0.0, 1 << 30)
    assert partition(wide, images(64, 8), ["numpy"] * 2, 8, rates=[RATES] * 2).cuts == ["2"]
    assert partition(wide, images(64, 8), ["numpy"] * 2, 8, rates=[slow_link] * 2).cuts != ["2"]


def test_memory_decides_where_speed_would_not() -> None:
    """The first device has half of the memory and more micro-batches in flight, so it runs fewer layers."""
    model = blocks(8, 64)
    large = partition(model, images(64, 64), ["numpy"] * 2, 8, rates=[RATES] * 2)
    small = DeviceRates(1e9, 1e9, 1e9, 0.0, int(large.stages[0].memory * 0.6))
    tight = partition(model, images(64, 64), ["numpy"] * 2, 8, rates=[small, RATES])
    assert sizes(large) == [4, 4]
    assert sizes(tight)[0] < 4
    assert tight.stages[0].memory <= small.memory
    with pytest.raises(OutOfMemoryError, match=r"the closest needs .* KiB of .* KiB, .* KiB of"):
        partition(model, images(64, 64), ["numpy"] * 2, 8, rates=[small] * 2)


def test_a_model_larger_than_a_device_trains_on_four() -> None:
    """The whole model exceeds a device's memory. On four, losses equal NumPy's, and memory is within 3 % of the prediction."""
    polyhal.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=64, block_size=16, n_layer=6, n_head=2, n_embd=64), device="numpy")
    whole = copy.deepcopy(model)
    ids, targets = words(8, 16), words(8, 16, seed=1)
    devices = [Device(f"sim:teaching*4:{i},memory=4MiB") for i in range(4)]
    one = partition(model, ids, ["numpy"], 8, targets=targets, loss_function=cross_entropy, rates=[RATES])
    assert one.stages[0].memory > devices[0].pool.available
    found = partition(model, ids, devices, 8, targets=targets, loss_function=cross_entropy)
    pipeline = found.pipeline()
    optimizers = optim.AdamW(pipeline.parameters(), lr=1e-2), optim.AdamW(whole.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        for device in devices:
            device.pool.reset_peak()
        optimizers[0].zero_grad()
        loss = pipeline.forward_backward(ids, targets, cross_entropy)
        optimizers[0].step()
        optimizers[1].zero_grad()
        expected = cross_entropy(whole(ids), targets)
        expected.backward()
        optimizers[1].step()
        losses.append((loss.item(), expected.item()))
    assert losses[-1][1] < losses[0][1]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-4)
    for stage in found.stages:
        assert stage.device.memory_stats().peak == pytest.approx(stage.memory, rel=0.03)


def test_the_table_describes_the_partition() -> None:
    found = partition(blocks(4), images(8, 32), ["numpy"] * 2, 2, rates=[RATES] * 2)
    lines = str(found).splitlines()
    assert lines[0].split() == ["stage", "device", "from", "to", "ms", "receives", "parameters", "memory", "of"]
    assert "1      numpy   2" in lines[2]
    assert "512 B" in lines[2], "4 rows of 32 numbers"
    assert "balanced" in lines[-1]


def test_rates_of_a_simulated_device_are_its_profile() -> None:
    """Independent of the host's load. Tests of the simulator cover the times of kernels."""
    device: Any = Device("sim")
    rates, facts = device_rates(device), device.backend.describe()
    assert rates.flops == facts["flops_per_s"]
    assert rates.bandwidth == facts["bandwidth"]
    assert rates.link == facts["link_bandwidth"]
    assert rates.latency == facts["link_latency_ns"] * 1e-9
    assert rates.memory == pytest.approx(1 << 30, rel=0.2)
