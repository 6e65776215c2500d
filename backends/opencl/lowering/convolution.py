"""Convolution and its gradients: which kernels take which shapes."""

from __future__ import annotations

from polyhal.backends.common.convolutions import Convolution, lowerings
from polyhal.backends.common.planes import turned
from polyhal.backends.opencl.lowering import (
    conv_direct,
    conv_planes,
    conv_teams,
    conv_tiles,
    conv_weight_grad,
    conv_winograd,
)
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_FEW = 4
"""Filters per group up to which there is no matrix product to speak of."""


def _forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if not runtime.features.cpu:
        few = c.geometry.filters <= _FEW
        if few:
            return conv_direct.forward(runtime, c)
        return conv_teams.fastest(runtime, c, conv_teams.forward) or conv_tiles.forward(runtime, c)
    pays = conv_winograd.pays(runtime, c.geometry, c.out)
    return conv_winograd.forward(runtime, c) if pays else conv_planes.forward(runtime, c)


def _input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if not runtime.features.cpu:
        return conv_teams.fastest(runtime, c, conv_teams.input_grad) or conv_tiles.input_grad(runtime, c)
    pays = conv_winograd.pays(runtime, turned(c.geometry), c.out)
    return conv_winograd.input_grad(runtime, c) if pays else conv_planes.input_grad(runtime, c)


def _weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if runtime.features.cpu:
        return conv_weight_grad.weight_grad(runtime, c)
    return conv_teams.fastest(runtime, c, conv_teams.weight_grad) or conv_tiles.weight_grad(runtime, c)


LOWERINGS = lowerings(_forward, _input_grad, _weight_grad)
