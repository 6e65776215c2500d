"""Layers over images of one to three axes against PyTorch's: output and gradients, with its state dict loaded by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import ShapeError, UnsupportedDTypeError
from polyhal.nn import functional as F

from .compare import array, check_layer, close

T = torch.nn
IMAGES = {1: (2, 4, 11), 2: (2, 4, 7, 8), 3: (2, 4, 5, 6, 4)}


CONVOLUTIONS: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2)},
    {"kernel_size": 3, "padding": "same"},
    {"kernel_size": (2, 4), "padding": "same", "dilation": (1, 2)},
    {"kernel_size": 3, "padding": "valid", "bias": False},
    {"kernel_size": 3, "dilation": 2, "padding": 2},
    {"kernel_size": 3, "groups": 2, "padding": 1},
    {"kernel_size": 1, "groups": 4},
    {"kernel_size": 2, "stride": 2},
]


@pytest.mark.parametrize("settings", CONVOLUTIONS, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_conv2d(device: ph.Device, settings: dict[str, Any]) -> None:
    check_layer(
        nn.Conv2d(4, 8, device=device, **settings), T.Conv2d(4, 8, **settings), array(2, 4, 7, 8), device=device
    )


def test_conv2d_without_a_batch(device: ph.Device) -> None:
    check_layer(nn.Conv2d(2, 3, 3, device=device), T.Conv2d(2, 3, 3), array(2, 5, 5), device=device)


def test_conv2d_same_needs_stride_one() -> None:
    with pytest.raises(ShapeError, match="stride"):
        nn.Conv2d(1, 1, 3, stride=2, padding="same", device="numpy")(ph.zeros((1, 1, 4, 4), device="numpy"))


def test_conv2d_groups_must_divide() -> None:
    with pytest.raises(ValueError, match="3 groups do not divide"):
        nn.Conv2d(4, 6, 3, groups=3, device="numpy")


OTHER_CONVOLUTIONS: list[tuple[str, dict[str, Any]]] = [
    ("Conv1d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("Conv1d", {"kernel_size": 4, "padding": "same", "padding_mode": "circular"}),
    ("Conv2d", {"kernel_size": (3, 2), "padding": (1, 2), "padding_mode": "reflect"}),
    ("Conv2d", {"kernel_size": 3, "padding": 1, "padding_mode": "replicate"}),
    ("Conv3d", {"kernel_size": (3, 2, 2), "stride": (1, 2, 1), "padding": (1, 0, 1), "groups": 2}),
    ("Conv3d", {"kernel_size": 2, "dilation": 2, "padding": "same"}),
    ("ConvTranspose1d", {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}),
    ("ConvTranspose2d", {"kernel_size": 3, "stride": (2, 3), "output_padding": (1, 2), "groups": 2}),
    ("ConvTranspose2d", {"kernel_size": 3, "dilation": 3, "output_padding": 2, "padding": 1, "bias": False}),
    ("ConvTranspose3d", {"kernel_size": 2, "stride": 2, "padding": 1, "output_padding": 1}),
    ("ConvTranspose3d", {"kernel_size": (2, 3, 1), "dilation": (2, 1, 1), "groups": 2}),
]


@pytest.mark.parametrize(("name", "settings"), OTHER_CONVOLUTIONS, ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_convolutions_of_other_kinds(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    image = array(*IMAGES[int(name[-2])])
    check_layer(
        getattr(nn, name)(4, 6, device=device, **settings), getattr(T, name)(4, 6, **settings), image, device=device
    )


def test_a_transposed_convolution_makes_the_size_that_a_call_names(device: ph.Device) -> None:
    ours, theirs = nn.ConvTranspose2d(4, 2, 3, 2, device=device), T.ConvTranspose2d(4, 2, 3, 2)
    check_layer(ours, theirs, array(*IMAGES[2]), device=device, call=lambda layer, xs: layer(*xs, output_size=(16, 17)))
    with pytest.raises(ShapeError, match=r"from \(15, 17\) on"):
        ours(ph.tensor(array(*IMAGES[2]), device=device), output_size=(14, 17))


def test_convolutions_refuse_integers_and_say_so(device: ph.Device) -> None:
    x, w = (ph.tensor(np.ones(s, np.int32), device=device) for s in ((1, 1, 3, 3), (1, 1, 2, 2)))
    for function in (ph.conv2d, F.conv2d, F.conv_transpose2d):
        with pytest.raises(UnsupportedDTypeError, match="got int32; expected floats"):
            function(x, w)


POOLS: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool2d", {"kernel_size": 2}),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("MaxPool2d", {"kernel_size": (2, 3), "stride": 1, "dilation": 2}),
    ("MaxPool1d", {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    ("MaxPool3d", {"kernel_size": (2, 3, 2), "stride": 2, "padding": (1, 0, 1)}),
    ("AvgPool2d", {"kernel_size": 2}),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "divisor_override": 4}),
    ("AvgPool1d", {"kernel_size": 4, "stride": 3, "ceil_mode": True}),
    ("AvgPool3d", {"kernel_size": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}),
    ("LPPool2d", {"norm_type": 2, "kernel_size": 2}),
    ("AdaptiveAvgPool1d", {"output_size": 4}),
    ("AdaptiveAvgPool2d", {"output_size": 1}),
    ("AdaptiveAvgPool2d", {"output_size": (4, 2)}),
    ("AdaptiveAvgPool2d", {"output_size": (3, None)}),
    ("AdaptiveAvgPool2d", {"output_size": (5, 3)}),
    ("AdaptiveAvgPool3d", {"output_size": (2, 4, 3)}),
    ("AdaptiveMaxPool1d", {"output_size": 4}),
    ("AdaptiveMaxPool2d", {"output_size": (3, None)}),
    ("AdaptiveMaxPool3d", {"output_size": (2, 4, 3)}),
]


@pytest.mark.parametrize(("name", "settings"), POOLS, ids=str)
def test_pooling(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    image = array(*IMAGES[int(name[-2])])
    check_layer(getattr(nn, name)(**settings), getattr(T, name)(**settings), image, device=device)


def test_arguments_by_position_are_in_the_order_of_pytorch(device: ph.Device) -> None:
    image = array(1, 1, 5, 5)
    ours = nn.AvgPool2d(2, 2, 0, True)(ph.tensor(image, device=device))
    close(ours, T.AvgPool2d(2, 2, 0, True)(torch.tensor(image)))
    close(
        F.avg_pool2d(ph.tensor(image, device=device), 2, 2, 1, True, False),
        T.AvgPool2d(2, 2, 1, True, False)(torch.tensor(image)),
    )
    layer, expected = nn.Conv2d(1, 1, 3, 1, 1, 1, 1, True, "reflect"), T.Conv2d(1, 1, 3, 1, 1, 1, 1, True, "reflect")
    check_layer(layer.to(device), expected, image, device=device)


RESIZING: list[tuple[str, dict[str, Any]]] = [
    ("Upsample", {"scale_factor": 1.5}),
    ("Upsample", {"size": (5, 17), "mode": "bilinear"}),
    ("Upsample", {"scale_factor": (2, 0.6), "mode": "bicubic", "align_corners": True}),
    ("UpsamplingBilinear2d", {"scale_factor": 2}),
    ("PixelShuffle", {"upscale_factor": 2}),
    ("PixelUnshuffle", {"downscale_factor": 1}),
    ("ChannelShuffle", {"groups": 2}),
    ("Unfold", {"kernel_size": (3, 2), "dilation": 2, "padding": 1, "stride": (1, 2)}),
    ("ReflectionPad2d", {"padding": (2, 1, 0, 3)}),
    ("ReplicationPad2d", {"padding": 2}),
    ("CircularPad2d", {"padding": (1, 2, 3, 0)}),
    ("ConstantPad2d", {"padding": (1, -2, 0, 3), "value": 0.5}),
    ("ZeroPad2d", {"padding": 1}),
]


@pytest.mark.parametrize(("name", "settings"), RESIZING, ids=str)
def test_resizing_and_padding(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    check_layer(getattr(nn, name)(**settings), getattr(T, name)(**settings), array(*IMAGES[2]), device=device)


def test_fold_undoes_unfold_where_windows_do_not_overlap(device: ph.Device) -> None:
    columns = array(2, 12, 6)
    check_layer(nn.Fold((4, 6), 2, stride=2), T.Fold((4, 6), 2, stride=2), columns, device=device)
    folded = F.fold(ph.tensor(columns, device=device), (4, 6), 2, stride=2)
    close(F.unfold(folded, 2, stride=2), columns)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_downsampling_with_antialias_averages_the_area_of_a_result(device: ph.Device, mode: str) -> None:
    x = array(1, 2, 13, 9)
    ours = F.interpolate(ph.tensor(x, device=device), (4, 3), mode=mode, antialias=True)
    close(ours, torch.nn.functional.interpolate(torch.tensor(x), (4, 3), mode=mode, antialias=True))


def test_interpolation_reads_no_infinity_that_has_no_weight(device: ph.Device) -> None:
    x = ph.tensor([[[1.0, float("inf"), 2.0]]], device=device)
    assert F.interpolate(x, 2, mode="linear", align_corners=True).tolist() == [[[1.0, 2.0]]]


def test_max_pooling_is_undone_with_its_indices(device: ph.Device) -> None:
    x = array(2, 3, 6, 8)
    values, places = nn.MaxPool2d(2, return_indices=True)(ph.tensor(x, device=device))
    expected, at = T.MaxPool2d(2, return_indices=True)(torch.tensor(x))
    assert places.tolist() == at.tolist()
    close(nn.MaxUnpool2d(2)(values, places), T.MaxUnpool2d(2)(expected, at))


def test_fractional_pooling_takes_pytorchs_samples(device: ph.Device) -> None:
    x, samples = array(2, 3, 9, 11), np.random.default_rng(0).uniform(0, 1, (2, 3, 2)).astype(np.float32)
    expected, at = T.FractionalMaxPool2d(2, (4, 6), return_indices=True, _random_samples=torch.tensor(samples))(
        torch.tensor(x)
    )
    drawn = ph.tensor(samples, device=device)
    values, places = nn.FractionalMaxPool2d(2, (4, 6), return_indices=True, _random_samples=drawn)(
        ph.tensor(x, device=device)
    )
    close(values, expected)
    assert places.tolist() == at.tolist()


@pytest.mark.parametrize("align", [True, False])
def test_a_spatial_transformer_samples_and_learns_as_in_pytorch(device: ph.Device, align: bool) -> None:
    x, theta = array(2, 3, 5, 6), array(2, 2, 3, scale=0.7)
    mine = [ph.tensor(v, device=device, requires_grad=True) for v in (x, theta)]
    other = [torch.tensor(v, requires_grad=True) for v in (x, theta)]
    ours = F.grid_sample(
        mine[0], F.affine_grid(mine[1], (2, 3, 4, 7), align), padding_mode="border", align_corners=align
    )
    grid = torch.nn.functional.affine_grid(other[1], [2, 3, 4, 7], align)
    theirs = torch.nn.functional.grid_sample(other[0], grid, padding_mode="border", align_corners=align)
    close(ours, theirs)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    for a, b in zip(mine, other, strict=True):
        close(a.grad, b.grad, 1e-4)
