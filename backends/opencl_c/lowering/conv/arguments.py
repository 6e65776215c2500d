"""Kernel arguments that the convolution kernels of GPUs share (shaders/opencl/conv/geometry.h and output_index.h)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.launch import Argument
from polyhal.backends.common.problems.conv import Correlation, Pair
from polyhal.hal.layout import Spec

Args = dict[str, Argument]

POSITION_LIMIT = 1 << 14
"""Exclusive maximum of positions and displacements in an image: two of them share a word (PIXEL_AT of conv/geometry.h)."""


def geometry_args(p: Correlation) -> Args:
    """Return the members of ConvGeometry."""
    return {
        "m": p.m,
        "n": p.n,
        "k": p.k,
        "a_group": p.a_group,
        "a_row": p.a_row,
        "a_term0": p.a_terms[0],
        "a_term1": p.a_terms[1],
        "a_term2": p.a_terms[2],
        "x_group": p.x_group,
        "x_term": p.x_term,
        "x_column": p.x_column,
        "x_down": p.x_down,
        "x_across": p.x_across,
        "term_height": p.term_lengths[0],
        "term_width": p.term_lengths[1],
        "column_height": p.column_lengths[0],
        "column_width": p.column_lengths[1],
        "height": p.size[0],
        "width": p.size[1],
        "origin_y": p.origin[0],
        "origin_x": p.origin[1],
        "term_step_y": p.term_step[0],
        "term_step_x": p.term_step[1],
        "column_step_y": p.column_step[0],
        "column_step_x": p.column_step[1],
    }


@dataclass(frozen=True, slots=True)
class OutputIndex:
    """Where the results of a product are stored: the members of OutputGeometry."""

    strides: tuple[int, int, int, int, int]
    """Strides of group, image, channel, row and column."""
    lines: Pair
    """Lines per image, and columns of the product per line."""
    channels: int
    """Rows per phase."""
    phases: Pair
    size: Pair
    """Height and width of the output."""

    def args(self) -> Args:
        group, image, channel, down, across = self.strides
        return {
            "out_group": group,
            "out_image": image,
            "out_channel": channel,
            "out_down": down,
            "out_across": across,
            "lines": self.lines[0],
            "line_length": self.lines[1],
            "channels": self.channels,
            "phases_down": self.phases[0],
            "phases_across": self.phases[1],
            "out_height": self.size[0],
            "out_width": self.size[1],
        }


def output_index(p: Correlation) -> OutputIndex:
    """Return the output index of a product of one phase."""
    image, down, across = p.out_columns
    return OutputIndex((p.out_group, image, p.out_row, down, across), p.column_lengths, p.m, (1, 1), p.column_lengths)


def stores_vectors(p: Correlation, out: Spec, count: int) -> bool:
    """Return whether every aligned run of `count` columns is contiguous and aligned in the output."""
    image, down, across = p.out_columns
    distances = (math.prod(p.column_lengths), image, p.out_row, p.out_group, p.out_offset)
    contiguous = across == 1 and down == p.column_lengths[1]
    return out.aligned and contiguous and all(d % count == 0 for d in distances)
