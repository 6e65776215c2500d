"""The U-Net that predicts noise in diffusion models. Source: Ho et al., "Denoising diffusion probabilistic models",
arXiv:2006.11239, appendix B.

State-dict keys equal `UNet2DModel` in Hugging Face's diffusers, so that its weights load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import Conv2d, Dropout, GroupNorm, Linear, Module, ModuleList
from polyhal.nn import functional as F


def time_features(t: Tensor, width: int) -> Tensor:
    """Sines and cosines (N, width) of time steps (N,), in float32. Raises ValueError for an odd width.

    Frequencies fall from 1 to 1/10000. Source: Vaswani et al., arXiv:1706.03762, as in the code of arXiv:2006.11239.
    """
    if width % 2:
        raise ValueError(message("time_features", f"width is {width}", expected="an even number"))
    half = width // 2
    rates = ph.exp(ph.arange(0, half, 1, dtypes.float32, device=t.device) * (-math.log(10000.0) / max(half - 1, 1)))
    angles = ph.unsqueeze(t.to(dtypes.float32), -1) * rates
    return ph.concat([ph.sin(angles), ph.cos(angles)], -1)


class TimeEmbedding(Module):
    """Two linear layers with SiLU between them: features of time (N, width) to (N, 4 width)."""

    def __init__(self, width: int, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.linear_1 = Linear(width, 4 * width, device=device, dtype=dtype)
        self.linear_2 = Linear(4 * width, 4 * width, device=device, dtype=dtype)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.linear_2(F.silu(self.linear_1(features)))
        return out


class ResidualBlock(Module):
    """Two convolutions with group norm, to which the embedding of time is added in between, and a shortcut.

    (N, in_channels, H, W) and (N, time_width) to (N, out_channels, H, W).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        time_width: int,
        groups: int = 32,
        eps: float = 1e-5,
        dropout: float = 0.0,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm1 = GroupNorm(groups, in_channels, eps, **place)
        self.conv1 = Conv2d(in_channels, out_channels, 3, padding=1, **place)
        self.time_emb_proj = Linear(time_width, out_channels, **place)
        self.norm2 = GroupNorm(groups, out_channels, eps, **place)
        self.dropout = Dropout(dropout)
        self.conv2 = Conv2d(out_channels, out_channels, 3, padding=1, **place)
        self.conv_shortcut = Conv2d(in_channels, out_channels, 1, **place) if in_channels != out_channels else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        shift = self.time_emb_proj(F.silu(time))
        out = self.conv1(F.silu(self.norm1(x))) + ph.reshape(shift, (*shift.shape, 1, 1))
        out = self.conv2(self.dropout(F.silu(self.norm2(out))))
        shortcut = x if self.conv_shortcut is None else self.conv_shortcut(x)
        result: Tensor = shortcut + out
        return result


class PixelAttention(Module):
    """Self-attention among the pixels of an image (N, C, H, W), on normalized input and added to it."""

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        groups: int = 32,
        eps: float = 1e-5,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.heads = heads
        self.group_norm = GroupNorm(groups, channels, eps, **place)
        self.to_q = Linear(channels, channels, **place)
        self.to_k = Linear(channels, channels, **place)
        self.to_v = Linear(channels, channels, **place)
        self.to_out = ModuleList([Linear(channels, channels, **place)])

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.group_norm(x).flatten(2).transpose(1, 2)
        q, k, v = (F.split_heads(to(pixels), self.heads) for to in (self.to_q, self.to_k, self.to_v))
        out = self.to_out[0](F.merge_heads(F.scaled_dot_product_attention(q, k, v)))
        result: Tensor = x + ph.reshape(out.transpose(1, 2), x.shape)
        return result


class Downsample(Module):
    """A strided convolution that halves an image. With `padding=0` a row and a column are added at the end."""

    def __init__(
        self, channels: int, padding: int = 1, device: Device | str | None = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.padding = padding
        self.conv = Conv2d(channels, channels, 3, 2, padding, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x if self.padding else F.pad(x, (0, 1, 0, 1)))
        return out


class UpsampleConv(Module):
    """Nearest-neighbour upsampling by 2, then a convolution."""

    def __init__(self, channels: int, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.conv = Conv2d(channels, channels, 3, padding=1, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))
        return out


class UNetLevel(Module):
    """The blocks of one resolution: `resnets`, each optionally followed by one of `attentions`, and a change of resolution."""

    def __init__(
        self,
        resnets: Sequence[ResidualBlock],
        attentions: Sequence[PixelAttention] = (),
        downsampler: Downsample | None = None,
        upsampler: UpsampleConv | None = None,
    ) -> None:
        super().__init__()
        self.resnets = ModuleList(resnets)
        self.attentions = ModuleList(attentions)
        self.downsamplers = ModuleList([] if downsampler is None else [downsampler])
        self.upsamplers = ModuleList([] if upsampler is None else [upsampler])

    def down(self, x: Tensor, time: Tensor) -> list[Tensor]:
        """Return all results of the downward path; the last one is the input of the next level."""
        results = []
        for i, resnet in enumerate(self.resnets):
            x = resnet(x, time)
            if len(self.attentions):
                x = self.attentions[i](x)
            results.append(x)
        for downsampler in self.downsamplers:
            x = downsampler(x)
            results.append(x)
        return results

    def up(self, x: Tensor, time: Tensor, skips: list[Tensor]) -> Tensor:
        """Return the result of the upward path; each block takes one of `skips`, from the end."""
        for i, resnet in enumerate(self.resnets):
            x = resnet(ph.concat([x, skips.pop()], 1), time)
            if len(self.attentions):
                x = self.attentions[i](x)
        for upsampler in self.upsamplers:
            x = upsampler(x)
        return x

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Compute the bottom level: attention between the first and the second block."""
        out: Tensor = self.resnets[1](self.attentions[0](self.resnets[0](x, time)), time)
        return out


class UNet(Module):
    """Noisy images (N, in_channels, H, W) and time steps (N,) to predicted noise (N, out_channels, H, W).

    `block_out_channels` are the channels per resolution; each resolution is half of the previous one, and `attention` selects
    the resolutions with attention among pixels. H and W must be divisible by 2 ** (resolutions - 1). Attention heads have
    `attention_head_dim` features; by default there is one head. Weights of the original have `downsample_padding=0` and
    `norm_eps=1e-6`. Raises ShapeError, and ValueError unless `attention` has an entry per resolution.
    """

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int | None = None,
        block_out_channels: Sequence[int] = (128, 256, 256, 256),
        attention: Sequence[bool] = (False, True, False, False),
        layers_per_block: int = 2,
        norm_num_groups: int = 32,
        norm_eps: float = 1e-5,
        attention_head_dim: int | None = None,
        dropout: float = 0.0,
        downsample_padding: int = 1,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if len(attention) != len(block_out_channels):
            raise ValueError(
                message("UNet", f"attention has {len(attention)} entries", expected=f"{len(block_out_channels)}")
            )
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        norm: dict[str, Any] = {"groups": norm_num_groups, "eps": norm_eps, **place}
        widths = tuple(block_out_channels)
        time_width = 4 * widths[0]

        def resnet(wide: int, to: int) -> ResidualBlock:
            return ResidualBlock(wide, to, time_width, dropout=dropout, **norm)

        def attend(wide: int) -> PixelAttention:
            return PixelAttention(wide, wide // (attention_head_dim or wide), **norm)

        self.in_channels = in_channels
        self.scale = 2 ** (len(widths) - 1)
        self.conv_in = Conv2d(in_channels, widths[0], 3, padding=1, **place)
        self.time_embedding = TimeEmbedding(widths[0], **place)
        skips, here = [widths[0]], widths[0]
        self.down_blocks = ModuleList()
        for i, width in enumerate(widths):
            resnets = [resnet(here if j == 0 else width, width) for j in range(layers_per_block)]
            attentions = [attend(width) for _ in resnets] if attention[i] else []
            last = i == len(widths) - 1
            self.down_blocks.append(
                UNetLevel(resnets, attentions, None if last else Downsample(width, downsample_padding, **place))
            )
            skips += [width] * (layers_per_block + (not last))
            here = width
        self.mid_block = UNetLevel([resnet(here, here), resnet(here, here)], [attend(here)])
        self.up_blocks = ModuleList()
        for i in reversed(range(len(widths))):
            width, resnets = widths[i], []
            for _ in range(layers_per_block + 1):
                resnets.append(resnet(here + skips.pop(), width))
                here = width
            attentions = [attend(width) for _ in resnets] if attention[i] else []
            self.up_blocks.append(
                UNetLevel(resnets, attentions, None, None if i == 0 else UpsampleConv(width, **place))
            )
        self.conv_norm_out = GroupNorm(norm_num_groups, widths[0], norm_eps, **place)
        self.conv_out = Conv2d(widths[0], in_channels if out_channels is None else out_channels, 3, padding=1, **place)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.in_channels or x.shape[2] % self.scale or x.shape[3] % self.scale:
            expected = f"(N, {self.in_channels}, H, W) with H and W divisible by {self.scale}"
            raise ShapeError(message("UNet", f"images of shape {x.shape}", expected=expected))
        features = time_features(t, self.conv_in.out_channels).to(x.dtype)
        time = self.time_embedding(features)
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            skips += level.down(skips[-1], time)
        x = self.mid_block(skips[-1], time)
        for level in self.up_blocks:
            x = level.up(x, time, skips)
        out: Tensor = self.conv_out(F.silu(self.conv_norm_out(x)))
        return out


_OLD_NAMES = {".query.": ".to_q.", ".key.": ".to_k.", ".value.": ".to_v.", ".proj_attn.": ".to_out.0."}


def from_diffusers_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a `UNet2DModel` that was saved by an old version of diffusers (such as google/ddpm-cifar10-32)."""
    out = {}
    for key, value in state.items():
        for old, new in _OLD_NAMES.items():
            key = key.replace(old, new)
        out[key] = value
    return out
