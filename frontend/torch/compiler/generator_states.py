"""States of the generators of random numbers, so that work on both devices can be repeated."""

from __future__ import annotations

import torch

from polyhal import random


class GeneratorStates:
    """States of the default generators of the device and of the CPU."""

    def __init__(self) -> None:
        self._device = random.default_generator.get_state()
        self._cpu = torch.default_generator.get_state()

    def restore(self) -> bool:
        """Set the generators back. Returns whether numbers had been drawn."""
        was_used = random.default_generator.get_state() != self._device or not torch.equal(
            torch.default_generator.get_state(), self._cpu
        )
        random.default_generator.set_state(self._device)
        torch.default_generator.set_state(self._cpu)
        return was_used
