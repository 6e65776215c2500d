"""A device that has a kernel for every op, so that passes which ask for kernels can be tested without any driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.backends.numpy.backend import NumpyBackend, array, create
from polyhal.hal.device import Device
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch


class RichBackend(NumpyBackend):
    """Lowers every op but those in `without` to its reference."""

    def __init__(self, without: frozenset[str]) -> None:
        super().__init__(create("").info)
        self.capabilities = replace(self.capabilities, reference=False)
        self._without = without

    def lower(
        self, op: str, inputs: tuple[Any, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        if op in self._without:
            return Declined(f"no kernel for {op}")
        bound = {name: params[name] for name in OPS[op].schema.params}

        def run(*arguments: Any) -> None:
            taken = [array(x) if hasattr(x, "handle") else x for x in arguments[: len(inputs)]]
            made = OPS[op].reference(*taken, **bound)
            made = made if isinstance(made, tuple) else (made,)
            for out, value in zip(arguments[len(inputs) :], made, strict=False):
                array(out)[...] = np.asarray(value)

        return SimpleLaunch(op, run)


def rich_device(*without: str) -> Device:
    """Return a device with kernels for all ops but these."""
    return Device.opened("rich", RichBackend(frozenset(without)))
