"""Copies between devices within a captured step. Outside of one, `Tensor.to` copies at once and needs no op."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS, OpDef, Output, Specs
from polyhal.hal.ops.traits import Trait


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    (x,) = specs
    assert isinstance(x, Spec)
    return [(x.dtype, x.shape)]


transfer = OPS.declare(
    OpDef(
        name="transfer",
        family="transfer",
        doc="`x` on the device of the node, wherever it is. The scheduler runs it, as it knows both devices.",
        inputs=("x",),
        optional=frozenset(),
        variadic=False,
        params={},
        outputs=("out",),
        infer=_infer,
        public=False,
        reference=lambda x: np.array(x),
        traits=Trait.CROSS_DEVICE,
    )
)
