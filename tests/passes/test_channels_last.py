"""Images between convolutions are stored with channels last on devices that prefer it; all other values keep their layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import polyhal as ph
from polyhal import Device, Tensor, jit
from polyhal.hal import dtypes, layout
from polyhal.hal.compile.passes.fuse.batch_statistics import join_batch_norm
from polyhal.hal.compile.passes.layout.channels_last import channels_last
from polyhal.hal.compile.passes.simplify.dead_code import remove_dead_code
from polyhal.hal.compile.passes.simplify.views import simplify_views
from polyhal.nn import BatchNorm2d, Conv2d, Module
from polyhal.nn import functional as F

from .golden import check
from .rich_device import rich_device


def _preferring() -> Device:
    """Return a device whose convolutions prefer channels last in float32."""
    device = rich_device()
    device.backend.capabilities = replace(  # type: ignore[misc]
        device.backend.capabilities, channels_last=frozenset({dtypes.float32}), suballocation=True
    )
    return device


def test_a_block_is_converted() -> None:
    """Results keep their layout, and an op that does not follow reads a copy."""
    before = """
        %0: float32[2, 3, 5, 4]
        %1: float32[8, 3, 1, 1]
        %2: float32[4, 8, 1, 1]
        %3: float32[8]
        on it
        %4 = conv2d(%0, %1, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1): float32[2, 8, 5, 4]
        %5, %6, %7 = batch_norm(%4, %3, None, eps=0.1): float32[2, 8, 5, 4], float32[8], float32[8]
        %8 = reshape(%3, shape=(8, 1, 1)): float32[8, 1, 1]
        %9 = add(%5, %8): float32[2, 8, 5, 4]
        %10 = conv2d(%9, %2, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1): float32[2, 4, 5, 4]
        %11 = sum(%9, axis=(1, 2), keepdims=False): float32[2, 4]
        %12 = cumsum(%9, axis=1): float32[2, 8, 5, 4]
        return %9, %10, %11, %6, %12
        """
    after = """
        %0: float32[2, 3, 5, 4]
        %1: float32[8, 3, 1, 1]
        %2: float32[4, 8, 1, 1]
        %3: float32[8]
        on it
        %4 = conv2d(%0, %1, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1): float32[2, 8, 5, 4] strides [160, 1, 32, 8]
        %5 = permute(%4, axes=(0, 2, 3, 1)): float32[2, 5, 4, 8]
        %6 = reshape(%5, shape=(40, 8)): float32[40, 8]
        %7, %8, %9 = batch_norm(%6, %3, None, eps=0.1): float32[40, 8], float32[8], float32[8]
        %10 = reshape(%7, shape=(2, 5, 4, 8)): float32[2, 5, 4, 8]
        %11 = reshape(%3, shape=(1, 8, 1, 1)): float32[1, 8, 1, 1]
        %12 = permute(%11, axes=(0, 2, 3, 1)): float32[1, 1, 1, 8] strides [8, 1, 1, 1]
        %13 = add(%10, %12): float32[2, 5, 4, 8]
        %14 = permute(%13, axes=(0, 3, 1, 2)): float32[2, 8, 5, 4] strides [160, 1, 32, 8]
        %15 = conv2d(%14, %2, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1): float32[2, 4, 5, 4]
        %16 = sum(%13, axis=(1, 3), keepdims=True): float32[2, 1, 4, 1]
        %17 = permute(%16, axes=(0, 3, 1, 2)): float32[2, 1, 1, 4] strides [4, 1, 4, 1]
        %18 = reshape(%17, shape=(2, 4)): float32[2, 4]
        %19 = permute(%13, axes=(0, 3, 1, 2)): float32[2, 8, 5, 4] strides [160, 1, 32, 8]
        %20 = contiguous(%19): float32[2, 8, 5, 4]
        %21 = cumsum(%20, axis=1): float32[2, 8, 5, 4]
        return %20, %15, %18, %8, %21
        """  # noqa: E501
    check(lambda graph: simplify_views(channels_last(graph)), before, after, _preferring())


def test_images_that_a_program_stores_with_channels_last_are_not_copied() -> None:
    before = """
        %0: float32[2, 5, 4, 4]
        %1: float32[8, 4, 3, 3]
        on it
        %2 = permute(%0, axes=(0, 3, 1, 2)): float32[2, 4, 5, 4] strides [80, 1, 16, 4]
        %3 = conv2d(%2, %1, None, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1): float32[2, 8, 5, 4]
        %4 = relu(%3): float32[2, 8, 5, 4]
        %5 = permute(%4, axes=(0, 2, 3, 1)): float32[2, 5, 4, 8] strides [160, 4, 1, 20]
        return %5
        """
    after = """
        %0: float32[2, 5, 4, 4]
        %1: float32[8, 4, 3, 3]
        on it
        %2 = permute(%0, axes=(0, 3, 1, 2)): float32[2, 4, 5, 4] strides [80, 1, 16, 4]
        %3 = conv2d(%2, %1, None, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1): float32[2, 8, 5, 4] strides [160, 1, 32, 8]
        %4 = permute(%3, axes=(0, 2, 3, 1)): float32[2, 5, 4, 8]
        %5 = relu(%4): float32[2, 5, 4, 8]
        return %5
        """  # noqa: E501
    check(lambda graph: simplify_views(remove_dead_code(channels_last(graph))), before, after, _preferring())


def test_convolutions_compute_the_statistics_of_their_batch_norm() -> None:
    """A product of matrices is a convolution of images of one pixel; an addend may be computed after the convolution."""
    conv = "stride=(1, 1), padding=({0}, {0}), dilation=(1, 1), groups=1"
    before = f"""
        %0: float32[2, 4, 6, 4]
        %1: float32[8, 4, 3, 3]
        %2: float32[12, 8, 1, 1]
        %3: float32[12]
        %4: float32[4, 12, 1, 1]
        on it
        %5 = conv2d(%0, %1, None, {conv.format(1)}): float32[2, 8, 6, 4]
        %6, %7, %8 = batch_norm_relu(%5, None, None, eps=0.1): float32[2, 8, 6, 4], float32[8], float32[8]
        %9 = conv2d(%6, %2, None, {conv.format(0)}): float32[2, 12, 6, 4]
        %10 = conv2d(%5, %2, None, {conv.format(0)}): float32[2, 12, 6, 4]
        %11, %12, %13 = batch_norm_add_relu(%9, %10, %3, None, eps=0.1): float32[2, 12, 6, 4], float32[12], float32[12]
        %14 = conv2d(%11, %4, None, {conv.format(0)}): float32[2, 4, 6, 4]
        return %7, %12, %14
        """
    after = """
        %0: float32[2, 4, 6, 4]
        %1: float32[8, 4, 3, 3]
        %2: float32[12, 8, 1, 1]
        %3: float32[12]
        %4: float32[4, 12, 1, 1]
        on it
        %5, %6, %7, %8 = conv2d_batch_norm(%0, %1, None, None, None, stride=(1, 1), padding=(1, 1), dilation=(1, 1), eps=0.1, relu=True): float32[2, 8, 6, 4] strides [192, 1, 32, 8], float32[8], float32[8], float32[2, 8, 6, 4] strides [192, 1, 32, 8]
        %9 = permute(%8, axes=(0, 2, 3, 1)): float32[2, 6, 4, 8]
        %10 = permute(%5, axes=(0, 2, 3, 1)): float32[2, 6, 4, 8]
        %11 = reshape(%9, shape=(48, 8)): float32[48, 8]
        %12 = reshape(%2, shape=(12, 8)): float32[12, 8]
        %13 = linear(%11, %12, None): float32[48, 12]
        %14 = reshape(%13, shape=(48, 1, 1, 12)): float32[48, 1, 1, 12]
        %15 = permute(%14, axes=(0, 3, 1, 2)): float32[48, 12, 1, 1] strides [12, 1, 12, 12]
        %16 = reshape(%10, shape=(48, 8, 1, 1)): float32[48, 8, 1, 1]
        %17, %18, %19, %20 = conv2d_batch_norm(%16, %2, %15, %3, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), eps=0.1, relu=True): float32[48, 12, 1, 1] strides [12, 1, 12, 12], float32[12], float32[12], float32[48, 12, 1, 1] strides [12, 1, 12, 12]
        %21 = permute(%17, axes=(0, 2, 3, 1)): float32[48, 1, 1, 12]
        %22 = reshape(%21, shape=(2, 6, 4, 12)): float32[2, 6, 4, 12]
        %23 = permute(%22, axes=(0, 3, 1, 2)): float32[2, 12, 6, 4] strides [288, 1, 48, 12]
        %24 = conv2d(%23, %4, None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1): float32[2, 4, 6, 4]
        return %6, %18, %24
        """  # noqa: E501
    check(
        lambda graph: simplify_views(join_batch_norm(simplify_views(channels_last(graph)))),
        before,
        after,
        _preferring(),
    )


class _Net(Module):
    """A stem, a strided block with a shortcut, and one with grouped filters, which keep the usual layout."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.stem, self.stem_norm = Conv2d(3, 8, 3, 2, 1, bias=False, device=device), BatchNorm2d(8, device=device)
        self.first, self.first_norm = Conv2d(8, 12, 3, 2, 1, bias=False, device=device), BatchNorm2d(12, device=device)
        self.second = Conv2d(12, 12, 1, device=device)
        self.shortcut = Conv2d(8, 12, 1, 2, device=device)
        self.grouped = Conv2d(12, 12, 3, 1, 1, groups=3, device=device)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        y = self.second(F.relu(self.first_norm(self.first(x))))
        y = F.relu(y + self.shortcut(x)) * 0.5
        return y + F.avg_pool2d(self.grouped(y), 3, 1, 1)


def test_a_training_step_equals_the_eager_one() -> None:
    device = _preferring()
    ph.manual_seed(0)
    net = _Net(device)
    x = ph.Tensor(np.random.default_rng(0).standard_normal((3, 3, 17, 18)).astype(np.float32), device=device)

    def step(x: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        for parameter in net.parameters():
            parameter.grad = None
        y = net(x)
        loss = (y.mean((2, 3)) * y.amax((2, 3))).sum() + y[:, 1:4, ::2].flatten(1).exp().sum()
        loss.backward()
        return [loss, y, x.grad, *(p.grad * 1.0 for p in net.parameters())]

    expected = [t.numpy() for t in step(x)]
    jitted = jit(step)
    for _ in range(3):
        found = [t.numpy() for t in jitted(x)]
    for a, b in zip(found, expected, strict=True):
        # Sums of at most 243 terms in another order, and a variance; gradients go through six layers.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
    graph = jitted.steps[0].executable.graph
    stored = {
        n.op.name for n in graph.nodes if layout.is_channels_last(graph.tensor(n.outputs[0])) and n.op.view is None
    }
    assert {"conv2d", "conv2d_input_grad", "max_pool2d", "max_pool2d_grad", "avg_pool2d_grad"} <= stored
