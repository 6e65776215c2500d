"""Branches of a model: the side of each ReLU and the pixel of each max pooling.

Gradients are discontinuous there. Among a million activations, one or two are so close to 0 that rounding decides, and
then a gradient differs by a thousandth without a defect. So the reference takes the branches of the other model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

_TAKEN = ("ReLU", "MaxPool2d")


@contextmanager
def recorded(model: Any) -> Iterator[list[np.ndarray]]:
    """Record the inputs of each ReLU and max pooling of a model, of Polyhal or PyTorch, in the order of the calls."""
    inputs: list[np.ndarray] = []

    def note(module: Any, arguments: tuple[Any, ...]) -> None:
        inputs.append(arguments[0].detach().numpy().copy())

    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if type(m).__name__ in _TAKEN]
    yield inputs
    for hook in hooks:
        hook.remove()


@contextmanager
def replayed(model: torch.nn.Module, inputs: list[np.ndarray]) -> Iterator[None]:
    """Take the branches of recorded inputs."""
    rest = iter(inputs)

    def replace(module: Any, arguments: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor:
        x, decisive = arguments[0], torch.tensor(next(rest))
        if isinstance(module, torch.nn.ReLU):
            return x * (decisive > 0)
        sizes = module.kernel_size, module.stride, module.padding
        _, places = F.max_pool2d(decisive, *sizes, return_indices=True)
        return x.flatten(2).gather(2, places.flatten(2)).view(out.shape)

    hooks = [m.register_forward_hook(replace) for m in model.modules() if type(m).__name__ in _TAKEN]
    yield
    for hook in hooks:
        hook.remove()
    assert next(rest, None) is None, "the models call ReLU and pooling in different orders"
