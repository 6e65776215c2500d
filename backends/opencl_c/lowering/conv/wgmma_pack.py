"""Operands of convolutions by wgmma: packed channels-last by conv/wgmma_pack.cl, or read in place if they have that layout."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.tile_configs import half_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_VECTOR = 8
"""Channels per copy of 16 bytes; packed channels are a multiple of it."""
_PACK_TILE = 64
"""TILE of conv/wgmma_pack.cl: channels, and pixels, that a group transposes."""
_PACK_ITEMS = 256
"""ITEMS of conv/wgmma_pack.cl."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An operand packed by conv/wgmma_pack.cl, or read in place; distances count elements."""

    steps: tuple[Launch, ...]
    """The launch that packs it, unless it is read in place."""
    memory: Tensor | Workspace
    workspace: tuple[int, ...]
    """Bytes of its workspace, if it has one."""
    pitch: int
    """Channels per pixel, padded."""
    group_size: int
    term_size: int

    @property
    def in_place(self) -> bool:
        return not self.steps

    def sizes(self, name: str) -> Args:
        """Return the distances of groups and terms, as arguments."""
        return {f"{name}_group_size": self.group_size, f"{name}_term_size": self.term_size}


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices (channel, pixel) of an operand: groups, images (or rows of weights), channels, (height, width)."""

    lengths: tuple[int, int, int, tuple[int, int]]
    strides: tuple[int, int, int, tuple[int, int]]
    first: int = 0
    """Offset of the first element."""

    @property
    def pitch(self) -> int:
        """Channels per pixel, padded."""
        return round_up(self.lengths[2], _VECTOR)

    @property
    def group_size(self) -> int:
        """Elements of a packed group."""
        _, images, _, (height, width) = self.lengths
        return images * height * width * self.pitch

    def is_packed(self, spec: Spec, terms: int) -> bool:
        """Return whether the operand has the layout that conv/wgmma_pack.cl would give it."""
        groups, images, channels, (height, width) = self.lengths
        if spec.dtype.itemsize != 2 or terms != 1 or self.first or not spec.aligned or channels != self.pitch:
            return False
        packed = (self.group_size, height * width * channels, 1, width * channels, channels)
        strides = (*self.strides[:3], *self.strides[3])
        lengths = (groups, images, channels, height, width)
        return all(n == 1 or s == p for n, s, p in zip(lengths, strides, packed, strict=True))


def matrices_of(x: Spec, groups: int) -> Matrices:
    """Return the matrices of images."""
    images, channels, *size = x.shape
    s, each = x.strides, channels // groups
    return Matrices((groups, images, each, (size[0], size[1])), (each * s[1], s[0], s[1], (s[2], s[3])))


def pack(runtime: Runtime, tensor: int, spec: Spec, m: Matrices, terms: int, workspace: int) -> Packed:
    """Pack argument `tensor` into workspace `workspace`, unless it can be read in place."""
    groups, images, channels, (height, width) = m.lengths
    pixels, pitch, group_size = images * height * width, m.pitch, m.group_size
    if m.is_packed(spec, terms):
        return Packed((), Tensor(tensor), (), pitch, group_size, groups * group_size)
    x_group, x_image, x_channel, (x_down, x_across) = m.strides
    args: Args = {
        "x": Tensor(tensor),
        "packed": Workspace(workspace),
        "term_size": groups * group_size,
        "channels": channels,
        "pixels": pixels,
        "height": height,
        "width": width,
        "first": m.first,
        "x_group": x_group,
        "x_image": x_image,
        "x_channel": x_channel,
        "x_down": x_down,
        "x_across": x_across,
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": spec.dtype.name,
        "HALF_TYPE": half_type(spec.dtype),
        "BF16_TERMS": terms,
    }
    one_vector = pitch == _VECTOR
    tile = _PACK_ITEMS if one_vector else _PACK_TILE
    launch = runtime.launch(
        "conv/wgmma_pack",
        definitions,
        args if one_vector else {**args, "pitch": pitch},
        (ceil_div(pixels, tile) * _PACK_ITEMS, 1 if one_vector else ceil_div(pitch, tile), groups),
        (_PACK_ITEMS, 1, 1),
        kernel="conv_wgmma_pack_pixels" if one_vector else "conv_wgmma_pack",
    )
    nbytes = 2 * terms * groups * group_size
    return Packed((launch,), Workspace(workspace), (nbytes,), pitch, group_size, groups * group_size)
