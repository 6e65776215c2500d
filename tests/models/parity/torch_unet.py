"""The U-Net of diffusion models in PyTorch, with the names of diffusers' `UNet2DModel`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions, between which the embedding of time is added."""

    def __init__(self, wide: int, out: int, time: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, wide), nn.Conv2d(wide, out, 3, padding=1)
        self.time_emb_proj = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(groups, out), nn.Conv2d(out, out, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(wide, out, 1) if wide != out else None

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Attention(nn.Module):
    """Self-attention among pixels, in one head."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, width)
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixels = self.group_norm(x).flatten(2).mT
        weights = torch.softmax(self.to_q(pixels) @ self.to_k(pixels).mT / math.sqrt(x.shape[1]), -1)
        return x + self.to_out[0](weights @ self.to_v(pixels)).mT.reshape(x.shape)


class Resampling(nn.Module):
    """Half or double size, and a convolution."""

    def __init__(self, width: int, up: bool, padding: int = 1) -> None:
        super().__init__()
        self.up, self.padding = up, padding
        self.conv = nn.Conv2d(width, width, 3, 1 if up else 2, padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.up:
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        elif not self.padding:
            x = F.pad(x, (0, 1, 0, 1))
        return self.conv(x)


class Level(nn.Module):
    """The blocks of one resolution."""

    def __init__(self, blocks: list[Block], attentions: list[Attention], down: object, up: object) -> None:
        super().__init__()
        self.resnets, self.attentions = nn.ModuleList(blocks), nn.ModuleList(attentions)
        self.downsamplers = nn.ModuleList([down] if down else [])
        self.upsamplers = nn.ModuleList([up] if up else [])

    def run(self, i: int, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x = self.resnets[i](x, time)
        return self.attentions[i](x) if i < len(self.attentions) else x


class TorchUNet(nn.Module):
    """`polyhal.models.UNet` in PyTorch."""

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        attention: Sequence[bool],
        layers: int,
        groups: int,
        padding: int = 1,
    ) -> None:
        super().__init__()
        time = 4 * widths[0]
        self.conv_in = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.time_embedding = nn.ModuleDict({"linear_1": nn.Linear(widths[0], time), "linear_2": nn.Linear(time, time)})
        downs, ups, skips, here = [], [], [widths[0]], widths[0]
        for i, width in enumerate(widths):
            blocks = [Block(here if j == 0 else width, width, time, groups) for j in range(layers)]
            attentions = [Attention(width, groups) for _ in blocks] if attention[i] else []
            last = i == len(widths) - 1
            downs.append(Level(blocks, attentions, None if last else Resampling(width, False, padding), None))
            skips += [width] * (layers if last else layers + 1)
            here = width
        mid = Level([Block(here, here, time, groups) for _ in range(2)], [Attention(here, groups)], None, None)
        for i, width in reversed(list(enumerate(widths))):
            blocks = []
            for _ in range(layers + 1):
                blocks.append(Block(here + skips.pop(), width, time, groups))
                here = width
            attentions = [Attention(width, groups) for _ in blocks] if attention[i] else []
            ups.append(Level(blocks, attentions, None, Resampling(width, True) if i else None))
        self.down_blocks, self.mid_block, self.up_blocks = nn.ModuleList(downs), mid, nn.ModuleList(ups)
        self.conv_norm_out = nn.GroupNorm(groups, widths[0])
        self.conv_out = nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        half = self.conv_in.out_channels // 2
        angles = t[:, None] * torch.exp(torch.arange(half, dtype=x.dtype) * (-math.log(10000) / (half - 1)))
        time = self.time_embedding["linear_1"](torch.cat([torch.sin(angles), torch.cos(angles)], 1))
        time = self.time_embedding["linear_2"](F.silu(time))
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            for i in range(len(level.resnets)):
                skips.append(x := level.run(i, x, time))
            for down in level.downsamplers:
                skips.append(x := down(x))
        x = self.mid_block.resnets[1](self.mid_block.run(0, x, time), time)
        for level in self.up_blocks:
            for i in range(len(level.resnets)):
                x = level.run(i, torch.cat([x, skips.pop()], 1), time)
            for up in level.upsamplers:
                x = up(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))
