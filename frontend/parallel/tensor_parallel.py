"""Tensor parallelism: the layers of a model, each divided among all devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.errors import message
from polyhal.models.bert import BertLayer
from polyhal.models.gpt import GPT, CausalSelfAttention, FeedForward
from polyhal.models.llama import Llama, LlamaAttention, SwiGLU
from polyhal.nn.attention import MultiheadAttention
from polyhal.nn.embedding import Embedding
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.nn.parameter import relocate
from polyhal.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from polyhal.parallel.group import Group
from polyhal.parallel.parallel_blocks import (
    ParallelCausalSelfAttention,
    ParallelFeedForward,
    ParallelLlamaAttention,
    ParallelMultiheadAttention,
    ParallelSwiGLU,
    Weights,
    divide_bert_layer,
)
from polyhal.parallel.parallel_layers import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear
from polyhal.parallel.sharded_module import ShardedModule, shares
from polyhal.tensor import Tensor

_BLOCKS: dict[type[Module], Callable[[Any, Group, Weights], Module]] = {
    CausalSelfAttention: ParallelCausalSelfAttention,
    FeedForward: ParallelFeedForward,
    LlamaAttention: ParallelLlamaAttention,
    SwiGLU: ParallelSwiGLU,
}


def tensor_parallel(
    model: Module,
    devices: Sequence[Device | str] | Group,
    *,
    shares: Weights = None,
    gather_logits: bool = True,
) -> Group:
    """Divide the layers of a model among devices, in place; return their group.

    Heads and hidden units of GPTs, Llamas, BERTs and `nn.Transformer` layers, and tables of tokens and logits, are divided
    evenly, or in proportion to `shares`, a positive number per device; everything else moves to the first device. If a layer
    has fewer heads than there are devices, some devices have none. State dicts keep the names and shapes of the undivided
    model. Its weights may be larger than a device's memory: create the model on the host, and optimizers after this call.
    Without `gather_logits` the model returns logits as a list, one tensor per device, for `vocab_parallel_cross_entropy`.
    Raises ValueError for a model without such layers, and for invalid shares.
    """
    group = devices if isinstance(devices, Group) else Group(devices)
    divided = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            make = _BLOCKS.get(type(child))
            if type(child) is MultiheadAttention and _divisible(child):
                make = ParallelMultiheadAttention
            if make is not None:
                setattr(module, name, make(child, group, shares).train(child.training))
                divided += 1
        if type(module) is BertLayer:
            divide_bert_layer(module, group, shares)
            divided += 1
        if type(module) in (TransformerEncoderLayer, TransformerDecoderLayer):
            _divide_feed_forward(module, group, shares)
            divided += 1
    if not divided:
        expected = "layers of a GPT, Llama, BERT or nn.Transformer"
        fix = "use ColumnParallelLinear and RowParallelLinear in its layers"
        raise ValueError(message("tensor_parallel", f"a {type(model).__name__} has none", expected=expected, fix=fix))
    for module in list(model.modules()):
        if isinstance(module, GPT):
            _divide_vocabulary(module.transformer, "wte", module, group, shares, gather_logits)
        elif isinstance(module, Llama):
            _divide_vocabulary(module.model, "embed_tokens", module, group, shares, gather_logits)
    for module in model.modules():
        sharded = (
            {id(p) for n in module._layouts for p in module.shards(n)} if isinstance(module, ShardedModule) else set()
        )
        for name in (*module._parameters, *module._buffers):
            x = module.__dict__[name]
            if x is not None and id(x) not in sharded and x.device is not group.devices[0]:
                relocate(x, group.devices[0], None)
    return group


def _divide_vocabulary(tables: Any, name: str, model: Any, group: Group, weights: Weights, gather: bool) -> None:
    """Divide a token table and the layer of logits, which may share their weights."""
    table, head = tables[name], model.lm_head
    if type(table) is not Embedding or type(head) is not Linear:
        return
    if table.padding_idx is not None or table.max_norm is not None or table.scale_grad_by_freq:
        return
    sizes = shares(table.num_embeddings, group, weights)
    parallel = ParallelEmbedding.of(table, group, sizes)
    logits = ColumnParallelLinear.of(head, group, sizes, gather=gather)
    if head.weight is table.weight:
        logits.share_shards("weight", parallel)
    tables[name] = parallel
    model.lm_head = logits


def _divisible(attention: MultiheadAttention) -> bool:
    return attention.in_proj_weight is not None and attention.bias_k is None and not attention.add_zero_attn


def _divide_feed_forward(layer: Any, group: Group, weights: Weights) -> None:
    """Divide the two linear layers of an `nn.Transformer` layer. The ops between them run on each device."""
    sizes = shares(layer.linear1.out_features, group, weights)
    layer.linear1 = ColumnParallelLinear.of(layer.linear1, group, sizes)
    layer.linear2 = RowParallelLinear.of(layer.linear2, group, sizes)
    layer._feed_forward = partial(_feed_forward, layer)


def _feed_forward(layer: Any, x: Tensor) -> Tensor:
    hidden = [layer.dropout(layer.activation(h)) for h in layer.linear1(x)]
    result: Tensor = layer.linear2(hidden)
    return result
