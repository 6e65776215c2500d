"""Tensor parallelism: the layers of a model, each divided among all devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.nn.attention import MultiheadAttention
from polyhal.nn.embedding import Embedding
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.parameter import relocate
from polyhal.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from polyhal.parallel.group import Group
from polyhal.parallel.parallel_attention import ParallelMultiheadAttention
from polyhal.parallel.parallel_layers import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear
from polyhal.parallel.sharded_module import ShardedModule, Weights
from polyhal.parallel.sharded_module import shares as shares_of
from polyhal.tensor import Tensor


def tensor_parallel(
    model: Module,
    devices: Sequence[Device | str] | Group,
    *,
    shares: Weights = None,
    gather_logits: bool = True,
) -> Group:
    """Divide the layers of a model among devices, in place; return their group.

    Heads and hidden units of GPTs, decoders, BERTs and `nn.Transformer` layers, and tables of tokens and logits, are divided
    evenly, or in proportion to `shares`, a positive number per device; everything else moves to the first device. If a layer
    has fewer heads than there are devices, some devices have none. State dicts keep the names and shapes of the undivided
    model. Its weights may be larger than a device's memory: create the model on the host, and optimizers after this call.
    Without `gather_logits` the model returns logits as a list, one tensor per device, for `vocab_parallel_cross_entropy`.

    Layers of other models are divided if their class has a method `tensor_parallel(group, shares)`, which returns the divided
    layer, or `self` if it has replaced layers of its own. A subclass does not inherit it: its forward pass may differ. A model
    with a table of tokens has a method `tensor_parallel_vocabulary(group, shares, gather_logits)`, which calls
    `divide_vocabulary`. Raises ValueError for a model without such layers, and for invalid shares.
    """
    group = devices if isinstance(devices, Group) else Group(devices)
    divided = int(_divided(model, group, shares) is model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            replacement = _divided(child, group, shares)
            if replacement is not None and replacement is not child:
                setattr(module, name, replacement.train(child.training))
            divided += replacement is not None
    if not divided:
        expected = "layers of a GPT, Decoder, BERT or nn.Transformer, or with a method tensor_parallel"
        fix = "use ColumnParallelLinear and RowParallelLinear in its layers"
        raise ValueError(message("tensor_parallel", f"a {type(model).__name__} has none", expected=expected, fix=fix))
    for module in list(model.modules()):
        if hasattr(module, "tensor_parallel_vocabulary"):
            module.tensor_parallel_vocabulary(group, shares, gather_logits)
    for module in model.modules():
        sharded = (
            {id(p) for n in module._layouts for p in module.shards(n)} if isinstance(module, ShardedModule) else set()
        )
        for name in (*module._parameters, *module._buffers):
            x = module.__dict__[name]
            if x is not None and id(x) not in sharded and x.device is not group.devices[0]:
                relocate(x, group.devices[0], None)
    return group


def _divided(module: Module, group: Group, weights: Weights) -> Module | None:
    """Divide a layer; return its replacement, or the layer if it was divided in place. None if it has no divided form."""
    if "tensor_parallel" in vars(type(module)):
        replacement: Module = vars(type(module))["tensor_parallel"](module, group, weights)
        return replacement
    if type(module) is MultiheadAttention and _divisible(module):
        return ParallelMultiheadAttention(module, group, weights)
    if type(module) in (TransformerEncoderLayer, TransformerDecoderLayer):
        _divide_feed_forward(module, group, weights)
        return module
    return None


def _divisible(attention: MultiheadAttention) -> bool:
    return attention.in_proj_weight is not None and attention.bias_k is None and not attention.add_zero_attn


def divide_vocabulary(
    tables: Any, name: str, model: Any, group: Group, shares: Weights = None, gather_logits: bool = True
) -> None:
    """Divide the token table `tables[name]` and the layer of logits `model.lm_head`, which may share their weights, by tokens.

    For `tensor_parallel_vocabulary` of a model; see `tensor_parallel`. No-op for tables and layers with other forward passes.
    Raises ValueError for invalid shares.
    """
    table, head = tables[name], model.lm_head
    if type(table) is not Embedding or type(head) is not Linear:
        return
    if table.padding_idx is not None or table.max_norm is not None or table.scale_grad_by_freq:
        return
    sizes = shares_of(table.num_embeddings, group, shares)
    parallel = ParallelEmbedding.of(table, group, sizes)
    logits = ColumnParallelLinear.of(head, group, sizes, gather=gather_logits)
    if head.weight is table.weight:
        logits.share_shards("weight", parallel)
    tables[name] = parallel
    model.lm_head = logits


def _divide_feed_forward(layer: Any, group: Group, weights: Weights) -> None:
    """Divide the two linear layers of an `nn.Transformer` layer. The ops between them run on each device."""
    sizes = shares_of(layer.linear1.out_features, group, weights)
    layer.linear1 = ColumnParallelLinear.of(layer.linear1, group, sizes)
    layer.linear2 = RowParallelLinear.of(layer.linear2, group, sizes)
    layer._feed_forward = partial(_feed_forward, layer)


def _feed_forward(layer: TransformerDecoderLayer | TransformerEncoderLayer, x: Tensor) -> Tensor:
    hidden = [layer.dropout(layer.activation(h)) for h in layer.linear1(x)]
    result: Tensor = layer.linear2(hidden)
    return result
