"""Linear layers and embedding tables whose weights are divided among the devices of a group.

Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053. A column-parallel layer followed by a row-parallel one requires one
broadcast and one sum for both. Activations between such pairs are on the group's first device, which runs the rest of the
model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.creation import empty
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.embedding import Embedding
from polyhal.nn.linear import Linear
from polyhal.nn.parameter import Parameter
from polyhal.parallel.group import Group
from polyhal.parallel.sharded_module import ShardedModule, ShardLayout, shares
from polyhal.tensor import Tensor


def spread(x: Tensor | Sequence[Tensor], group: Group) -> list[Tensor]:
    """Copy a tensor (...) to every device of a group. No-op for a sequence of tensors, one on each device."""
    return group.broadcast(x) if isinstance(x, Tensor) else list(x)


def _initial(rows: int, columns: int, bias: bool, dtype: object) -> tuple[Parameter, Parameter | None]:
    """Return the initial values of `nn.Linear`, on the host."""
    bound = 1 / math.sqrt(columns) if columns else 0.0
    weight = Parameter(empty((rows, columns), dtype, "numpy"))
    init.uniform_(weight, -bound, bound)
    if not bias:
        return weight, None
    offset = Parameter(empty((rows,), dtype, "numpy"))
    init.uniform_(offset, -bound, bound)
    return weight, offset


class ColumnParallelLinear(ShardedModule):
    """`input @ weight.T + bias` with the outputs divided among devices: (..., in_features) to (..., out_features).

    Takes a tensor on the first device, or one on each. With `gather`, returns the whole output on the first device, else a
    list of each device's outputs, for a `RowParallelLinear`. `blocks` equal parts of the outputs, such as queries,
    keys and values, are divided separately. `sizes` are the outputs per device and block, by default equal. Raises ValueError
    for sizes that do not add up.

    >>> group = polyhal.parallel.Group(["numpy", "numpy:no_f64"])
    >>> layer = polyhal.parallel.ColumnParallelLinear(4, 6, group)
    >>> [x.shape for x in layer(polyhal.ones(2, 4, device="numpy"))], layer.state_dict()["weight"].shape
    ([(2, 3), (2, 3)], (6, 4))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: Group,
        bias: bool = True,
        *,
        gather: bool = False,
        sizes: Sequence[int] | None = None,
        blocks: int = 1,
        dtype: object = None,
        weight: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> None:
        """`weight` and `offset` (the bias) are initial values, on any device."""
        super().__init__(group)
        self.in_features, self.out_features, self.gather = in_features, out_features, gather
        counts = shares(out_features // blocks, group) if sizes is None else tuple(sizes)
        _check_sizes("ColumnParallelLinear", counts, group, out_features // blocks)
        if weight is None:
            weight, offset = _initial(out_features, in_features, bias, dtype)
        self.add_shards("weight", weight, ShardLayout(0, counts, blocks))
        if offset is not None:
            self.add_shards("bias", offset, ShardLayout(0, counts, blocks))

    @classmethod
    def of(
        cls, linear: Linear, group: Group, sizes: Sequence[int] | None = None, blocks: int = 1, gather: bool = False
    ) -> ColumnParallelLinear:
        """Divide the weights of an ordinary layer."""
        return cls(
            linear.in_features,
            linear.out_features,
            group,
            linear.bias is not None,
            gather=gather,
            sizes=sizes,
            blocks=blocks,
            weight=linear.weight,
            offset=linear.bias,
        )

    def forward(self, input: Tensor | Sequence[Tensor], activation: str | None = None) -> list[Tensor] | Tensor:
        """`activation` names a function that is applied to the outputs (see `nn.functional.linear`)."""
        weights = self.shards("weight")
        biases: Sequence[Tensor | None] = self.shards("bias") or [None] * self.group.size
        parts = [
            F.linear(x, w, b, activation) for x, w, b in zip(spread(input, self.group), weights, biases, strict=True)
        ]
        return joined(parts, self.group) if self.gather else parts

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, group={self.group}"


class RowParallelLinear(ShardedModule):
    """`input @ weight.T + bias` with the inputs divided among devices: (..., in_features) to (..., out_features).

    Takes each device's inputs, as a `ColumnParallelLinear` returns them, or a tensor on the first device, and returns the sum
    on the first device, which holds the bias. `sizes` are the inputs per device. Raises ValueError for sizes that do not add
    up.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: Group,
        bias: bool = True,
        *,
        sizes: Sequence[int] | None = None,
        dtype: object = None,
        weight: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> None:
        """`weight` and `offset` (the bias) are initial values, on any device."""
        super().__init__(group)
        self.in_features, self.out_features = in_features, out_features
        self.sizes = shares(in_features, group) if sizes is None else tuple(sizes)
        _check_sizes("RowParallelLinear", self.sizes, group, in_features)
        if weight is None:
            weight, offset = _initial(out_features, in_features, bias, dtype)
        self.add_shards("weight", weight, ShardLayout(1, self.sizes))
        self.bias = None if offset is None else Parameter(offset.detach().to(group.devices[0]).clone())

    @classmethod
    def of(cls, linear: Linear, group: Group, sizes: Sequence[int] | None = None) -> RowParallelLinear:
        """Divide the weights of an ordinary layer."""
        features = linear.in_features, linear.out_features
        return cls(*features, group, linear.bias is not None, sizes=sizes, weight=linear.weight, offset=linear.bias)

    def forward(self, input: Tensor | Sequence[Tensor]) -> Tensor:
        if isinstance(input, Tensor):
            input = self.group.scatter(input, sizes=self.sizes, axis=-1)
        parts = [F.linear(x, w) for x, w in zip(input, self.shards("weight"), strict=True)]
        total = summed(parts, self.group)
        return total if self.bias is None else total + self.bias

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, group={self.group}"


class ParallelEmbedding(ShardedModule):
    """An embedding table whose rows are divided among devices: integers (...) to vectors (..., embedding_dim), on the first.

    Each device looks up the rows that it holds; the sum over devices is the result.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        group: Group,
        *,
        sizes: Sequence[int] | None = None,
        dtype: object = None,
        weight: Tensor | None = None,
    ) -> None:
        """`weight` is the initial value, on any device; by default it is normally distributed. Raises ValueError."""
        super().__init__(group)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.sizes = shares(num_embeddings, group) if sizes is None else tuple(sizes)
        _check_sizes("ParallelEmbedding", self.sizes, group, num_embeddings)
        if weight is None:
            weight = Parameter(empty((num_embeddings, embedding_dim), dtype, "numpy"))
            init.normal_(weight)
        self.add_shards("weight", weight, ShardLayout(0, self.sizes))

    @classmethod
    def of(cls, table: Embedding, group: Group, sizes: Sequence[int] | None = None) -> ParallelEmbedding:
        """Divide the rows of an ordinary table."""
        return cls(table.num_embeddings, table.embedding_dim, group, sizes=sizes, weight=table.weight)

    def forward(self, input: Tensor) -> Tensor:
        parts, start = [], 0
        for numbers, shard, size in zip(spread(input, self.group), self.shards("weight"), self.sizes, strict=True):
            own = numbers - start
            here = ops.logical_and(ops.greater_equal(own, 0), ops.less(own, size))
            rows = F.embedding(ops.where(here, own, 0), shard)
            parts.append(ops.where(ops.reshape(here, (*here.shape, 1)), rows, 0.0))
            start += size
        return summed(parts, self.group)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, group={self.group}"


def vocab_parallel_cross_entropy(
    logits: Sequence[Tensor], targets: Tensor, group: Group, ignore_index: int = -100
) -> Tensor:
    """Return the mean cross entropy of logits whose classes are divided among devices, on the first device.

    `logits` are (N, C_i) on each device of `group`, in the order of the classes, `targets` (N,) on the first device. Only
    maxima, sums and the targets' logits are exchanged between devices, never whole logits. Rows whose target is
    `ignore_index` do not count. Raises ShapeError.
    """
    rows = {x.shape[:-1] for x in logits}
    if len(logits) != group.size or rows != {targets.shape}:
        problem = (
            f"{len(logits)} logits of shapes {', '.join(str(x.shape) for x in logits)} for targets {targets.shape}"
        )
        raise ShapeError(
            message("vocab_parallel_cross_entropy", problem, expected=f"{group.size} logits (N, C_i) for targets (N,)")
        )
    largest = group.all_reduce([ops.max(x.detach(), -1, True) for x in logits], "max")
    shifted = [x - m for x, m in zip(logits, largest, strict=True)]
    sums = summed([ops.sum(ops.exp(x), -1) for x in shifted], group)
    chosen, start = [], 0
    for x, numbers in zip(shifted, spread(targets, group), strict=True):
        own = numbers - start
        classes = x.shape[-1]
        here = ops.logical_and(ops.greater_equal(own, 0), ops.less(own, classes))
        place = ops.reshape(ops.where(here, own, 0), (*own.shape, 1))
        found = ops.squeeze(ops.take_along_axis(x, place, -1), -1)
        chosen.append(ops.where(here, found, 0.0))
        start += classes
    counted = ops.not_equal(targets, ignore_index)
    losses = ops.where(counted, ops.log(sums) - summed(chosen, group), 0.0)
    return ops.sum(losses) / ops.sum(counted.cast(dtype=losses.dtype))


def summed(parts: Sequence[Tensor], group: Group) -> Tensor:
    """Return the sum of all devices' tensors, on the first device."""
    total = group.reduce(parts)
    assert total is not None
    return total


def joined(parts: Sequence[Tensor], group: Group, axis: int = -1) -> Tensor:
    """Concatenate all devices' tensors along `axis`, on the first device; other axes have equal lengths."""
    whole = group.gather(parts, axis=axis)
    assert whole is not None
    return whole


def _check_sizes(name: str, sizes: Sequence[int], group: Group, total: int) -> None:
    if len(sizes) != group.size or sum(sizes) != total or min(sizes) < 1:
        expected = f"{group.size} positive sizes that add up to {total}"
        raise ValueError(message(name, f"sizes {list(sizes)}", expected=expected))


__all__ = [
    "ColumnParallelLinear",
    "ParallelEmbedding",
    "RowParallelLinear",
    "joined",
    "spread",
    "summed",
    "vocab_parallel_cross_entropy",
]
