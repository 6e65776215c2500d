"""Parameters in shards, one per device, stored in state dicts under the whole parameter's name and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal.collectives.collective import divided
from polyhal.hal.errors import message
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.parallel.group import Group
from polyhal.tensor import Tensor

Weights = Sequence[float] | None
"""Proportions of heads and units per device; None for equal numbers."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """Division of an axis: shard i has `sizes[i]` entries of each of `blocks` equal parts of the axis.

    With three blocks, a fused projection's queries, keys and values of one head are in one shard.
    """

    axis: int
    sizes: tuple[int, ...]
    blocks: int = 1

    def split(self, whole: np.ndarray) -> list[np.ndarray]:
        """Return the shards of an array. Raises ValueError if its axis has another length."""
        length = self.blocks * sum(self.sizes)
        if self.axis >= whole.ndim or whole.shape[self.axis] != length:
            expected = f"{length} along axis {self.axis}"
            raise ValueError(message("ShardLayout", f"an array of shape {whole.shape}", expected=expected))
        apart = whole.reshape((*whole.shape[: self.axis], self.blocks, -1, *whole.shape[self.axis + 1 :]))
        parts = np.split(apart, np.cumsum(self.sizes)[:-1], self.axis + 1)
        return [np.ascontiguousarray(self._merged(part)) for part in parts]

    def join(self, shards: Sequence[np.ndarray]) -> np.ndarray:
        """Return the array that was split."""
        apart = [s.reshape((*s.shape[: self.axis], self.blocks, -1, *s.shape[self.axis + 1 :])) for s in shards]
        return self._merged(np.concatenate(apart, self.axis + 1))

    def _merged(self, apart: np.ndarray) -> np.ndarray:
        return apart.reshape((*apart.shape[: self.axis], -1, *apart.shape[self.axis + 2 :]))


class ShardedModule(Module):
    """Base of layers whose parameters are stored in shards on the devices of `group`; the first is the module's device.

    Shard i of `weight` is the parameter `weight_i`. State dicts have `weight`, whole and on the host.
    """

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group
        self._layouts: dict[str, ShardLayout] = {}
        self.register_state_dict_post_hook(_join_state)
        self.register_load_state_dict_pre_hook(_split_state)

    def add_shards(self, name: str, whole: Tensor, layout: ShardLayout) -> None:
        """Divide a tensor into parameters. No device needs memory for more than its shard."""
        for i, part in enumerate(layout.split(whole.detach().numpy())):
            shard = Parameter(Tensor(part, whole.dtype, self.group.devices[i]))
            shard.requires_grad = whole.requires_grad or not isinstance(whole, Parameter)
            self.register_parameter(f"{name}_{i}", shard)
        self._layouts[name] = layout

    def share_shards(self, name: str, other: ShardedModule) -> None:
        """Use the shards of another module's parameter with that name: tied weights."""
        for i, shard in enumerate(other.shards(name)):
            self.register_parameter(f"{name}_{i}", shard)
        self._layouts[name] = other._layouts[name]

    def shards(self, name: str) -> list[Parameter]:
        """Return the shards of a parameter, in the order of the devices. Empty if the layer has no such parameter."""
        count = self.group.size if name in self._layouts else 0
        return [self.__dict__[f"{name}_{i}"] for i in range(count)]

    def whole(self, name: str) -> np.ndarray:
        """Assemble a parameter on the host."""
        return self._layouts[name].join([s.detach().numpy() for s in self.shards(name)])

    @property
    def weight(self) -> Tensor:
        """Whole weight, off the tape, on the first device: for code that reads a layer's dtype and device."""
        if "weight" not in self._layouts:
            raise AttributeError(f"{type(self).__name__} has no weight")
        return Tensor(self.whole("weight"), self.shards("weight")[0].dtype, self.group.devices[0])


def _join_state(module: ShardedModule, state: dict[str, Any], prefix: str, metadata: Mapping[str, Any]) -> None:
    """Replace shards by whole tensors."""
    for name in module._layouts:
        shards = [state.pop(f"{prefix}{name}_{i}") for i in range(module.group.size)]
        state[prefix + name] = Tensor(module.whole(name), shards[0].dtype, "numpy")


def _split_state(
    module: ShardedModule,
    state: dict[str, Any],
    prefix: str,
    metadata: Mapping[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Replace whole tensors by shards."""
    for name, layout in module._layouts.items():
        key, shards = prefix + name, module.shards(name)
        parts: Sequence[Any] = [s.detach() for s in shards]  # unchanged if the key is missing or its shape is wrong
        if key not in state:
            missing.append(key)
        else:
            value = state.pop(key)
            array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
            whole = layout.join([np.empty(s.shape, bool) for s in shards]).shape
            if array.shape == whole:
                parts = layout.split(array)
            else:
                errors.append(f"shapes differ: {key} is {array.shape}, here {whole}")
        state.update({f"{key}_{i}": part for i, part in enumerate(parts)})


def sub_group(group: Group, units: int) -> Group:
    """Return the group, or a group of its first `units` devices if a layer has fewer units, such as heads, than devices."""
    if group.size <= units:
        return group
    return Group(group.devices[:units])


def shares(units: int, group: Group, weights: Weights = None) -> tuple[int, ...]:
    """Return how many of `units`, such as heads, each device has, at least one: equal numbers, or in proportion to `weights`.

    Raises ValueError for weights that are not positive, or not one per device.
    """
    if weights is None:
        return divided(units, group.size)
    chosen = list(weights)[: group.size]
    if len(chosen) < group.size or min(chosen) <= 0:
        raise ValueError(
            message("tensor_parallel", f"shares {list(weights)}", expected=f"{group.size} positive numbers")
        )
    exact = [units * w / sum(chosen) for w in chosen]
    counts = [max(1, int(x)) for x in exact]
    while sum(counts) > units:
        counts[max(range(len(counts)), key=lambda i: counts[i] - exact[i] if counts[i] > 1 else -np.inf)] -= 1
    while sum(counts) < units:
        counts[max(range(len(counts)), key=lambda i: exact[i] - counts[i])] += 1
    return tuple(counts)
