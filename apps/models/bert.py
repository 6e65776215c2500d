"""A BERT-style encoder of text. Source: Devlin et al., arXiv:1810.04805.

Settings and state-dict keys equal Hugging Face's `BertModel`, so that its weights load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.errors import ShapeError, message
from polyhal.models.hugging_face import refuse_unknown, refuse_values
from polyhal.nn import Dropout, Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList, init
from polyhal.nn import functional as F

if TYPE_CHECKING:
    from polyhal.parallel import Group

_ONLY: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "hidden_act": ("gelu",),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "model_type": ("bert", None),
    "position_embedding_type": ("absolute", None),
    "pruned_heads": ({}, None),
}
"""Supported values of settings for which Hugging Face supports more."""


@dataclass(frozen=True, slots=True)
class BertConfig:
    """Sizes of a BERT. The defaults are the sizes of bert-base-uncased."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            problem = (
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
            raise ValueError(message("BertConfig", problem))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BertConfig:
        """Read Hugging Face's `config.json`, loaded as a dictionary.

        Raises ValueError for settings that this encoder does not support, and for settings whose effect is unknown.
        """
        names = {f.name for f in fields(cls)}
        refuse_values("BertConfig", data, _ONLY)
        refuse_unknown("BertConfig", data, names | _ONLY.keys() | {"classifier_dropout"})
        return cls(**{name: data[name] for name in names if name in data})


class BertEmbeddings(Module):
    """Embeddings of tokens, positions and token types, summed and normalised: ids (N, T) to (N, T, hidden_size)."""

    def __init__(self, c: BertConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size, c.pad_token_id, **place)
        self.position_embeddings = Embedding(c.max_position_embeddings, c.hidden_size, **place)
        self.token_type_embeddings = Embedding(c.type_vocab_size, c.hidden_size, **place)
        self.LayerNorm = LayerNorm(c.hidden_size, c.layer_norm_eps, **place)
        self.dropout = Dropout(c.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = ph.zeros(input_ids.shape, ph.int32, input_ids.device) if token_type_ids is None else token_type_ids
        positions = self.position_embeddings.weight[: input_ids.shape[1]]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(types) + positions
        out: Tensor = self.dropout(self.LayerNorm(x))
        return out


class BertSelfAttention(Module):
    """Attention of every position to all positions that `keep` does not mask."""

    def __init__(self, c: BertConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.heads = c.num_attention_heads
        self.dropout = c.attention_probs_dropout_prob
        self.query = Linear(c.hidden_size, c.hidden_size, device=device, dtype=dtype)
        self.key = Linear(c.hidden_size, c.hidden_size, device=device, dtype=dtype)
        self.value = Linear(c.hidden_size, c.hidden_size, device=device, dtype=dtype)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        q, k, v = (F.split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        dropout = self.dropout if self.training else 0.0
        return F.merge_heads(F.scaled_dot_product_attention(q, k, v, keep, dropout))


class BertOutput(Module):
    """A linear layer, then the sum with the residual stream, normalised."""

    def __init__(self, c: BertConfig, width: int, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.dense = Linear(width, c.hidden_size, device=device, dtype=dtype)
        self.LayerNorm = LayerNorm(c.hidden_size, c.layer_norm_eps, device=device, dtype=dtype)
        self.dropout = Dropout(c.hidden_dropout_prob)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        out: Tensor = self.LayerNorm(self.dropout(self.dense(x)) + residual)
        return out


class BertLayer(Module):
    """Self-attention and a feed-forward network with GELU, each added to its input and normalised afterwards."""

    def __init__(self, c: BertConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.attention = ModuleDict(
            {
                "self": BertSelfAttention(c, device, dtype),
                "output": BertOutput(c, c.hidden_size, device, dtype),
            }
        )
        self.intermediate = ModuleDict(
            {"dense": Linear(c.hidden_size, c.intermediate_size, device=device, dtype=dtype)}
        )
        self.output = BertOutput(c, c.intermediate_size, device, dtype)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, keep), x)
        out: Tensor = self.output(self.intermediate["dense"](x, "gelu"), x)
        return out

    def tensor_parallel(self, group: Group, shares: Sequence[float] | None) -> Module:
        """Divide the heads and hidden units of this layer among devices, in place."""
        from polyhal.models.parallel_blocks import divide_bert_layer

        divide_bert_layer(self, group, shares)
        return self


class Bert(Module):
    """Token ids (N, T) to hidden states (N, T, hidden_size) and the pooled first one (N, hidden_size), through tanh."""

    def __init__(self, config: BertConfig, device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config, device, dtype)
        layers = ModuleList(BertLayer(config, device, dtype) for _ in range(config.num_hidden_layers))
        self.encoder = ModuleDict({"layer": layers})
        self.pooler = ModuleDict({"dense": Linear(config.hidden_size, config.hidden_size, device=device, dtype=dtype)})
        initialize(self, config.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`attention_mask` (N, T) is 0 or False for positions that no position attends to. Raises ShapeError."""
        if input_ids.ndim != 2 or input_ids.shape[1] > self.config.max_position_embeddings:
            expected = f"(N, T) with T up to {self.config.max_position_embeddings}"
            raise ShapeError(message("Bert", f"token ids of shape {input_ids.shape}", expected=expected))
        keep = None
        if attention_mask is not None:
            keep = ph.reshape(ph.not_equal(attention_mask, 0), (input_ids.shape[0], 1, 1, input_ids.shape[1]))
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder["layer"]:
            x = layer(x, keep)
        return x, ph.tanh(self.pooler["dense"](x[:, 0]))


class BertClassifier(Module):
    """Token ids (N, T) to logits (N, num_labels): an encoder, dropout, and a linear layer on the pooled first position.

    State-dict keys equal Hugging Face's `BertForSequenceClassification`.
    """

    def __init__(
        self, config: BertConfig, num_labels: int = 2, device: Device | str | None = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.bert = Bert(config, device, dtype)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.classifier = Linear(config.hidden_size, num_labels, device=device, dtype=dtype)
        initialize(self.classifier, config.initializer_range)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """See Bert."""
        _, pooled = self.bert(input_ids, attention_mask, token_type_ids)
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits


def initialize(model: Module, std: float) -> None:
    """Draw weights of linear layers and tables from a normal distribution; biases and rows of padding are 0."""
    for module in model.modules():
        if isinstance(module, (Linear, Embedding)):
            init.normal_(module.weight, 0.0, std)
        if isinstance(module, Linear) and module.bias is not None:
            init.zeros_(module.bias)
        if isinstance(module, Embedding) and module.padding_idx is not None:
            module.weight.detach()[module.padding_idx] = 0


def from_bert_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the state dict of a pre-trained model of Hugging Face, such as bert-base-uncased, for `Bert`.

    Keys lose `bert.`, and old names of norms (`gamma`, `beta`) become new ones; heads of other tasks are dropped.
    """
    out = {}
    for key, value in state.items():
        name = key.removeprefix("bert.")
        if name.startswith(("embeddings.", "encoder.", "pooler.")) and not name.endswith("position_ids"):
            out[name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")] = value
    return out
