"""Models that can be planned: construction with any number of layers, shapes of a batch, and the loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyhal import Device, Tensor, zeros
from polyhal.forecast.tensor_split import TensorSplit
from polyhal.hal import dtypes
from polyhal.hal.errors import message
from polyhal.models import GPT, BertClassifier, BertConfig, Decoder, DecoderConfig, GPTConfig, resnet18, resnet50
from polyhal.nn import Module
from polyhal.nn import functional as F

_IMAGE = 224
_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class ModelRecipe:
    """The properties of a model that a plan requires."""

    name: str
    build: Callable[[int, Device], Module]
    """Function that builds the model with a number of layers."""
    loss: Callable[[Any, Tensor, Tensor], Tensor]
    inputs: tuple[int, ...]
    """Shape of one sample."""
    targets: tuple[int, ...]
    unit: str
    """Unit of throughput: tokens or images."""
    layers: int = 0
    """Number of equal consecutive layers; 0 for a model without such layers, which is planned as a whole."""
    layer_prefix: str = ""
    """Path of the list of layers, with a trailing dot."""
    input_prefixes: tuple[str, ...] = ()
    """Paths of modules before the first layer; all other modules outside of the layers come after the last."""
    tied: tuple[str, str] | None = None
    """Name of a parameter of the input side that is also used after the last layer, and its name there."""
    split: TensorSplit | None = None
    """Split of layers among devices; None if unsupported."""

    @property
    def units_per_sample(self) -> int:
        """Number of tokens per sample, or 1 for an image."""
        return self.inputs[0] if self.unit == "tokens" else 1

    def batch(self, samples: int, device: Device) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of zeros: their values do not affect times."""
        kind = dtypes.int64 if self.unit == "tokens" else dtypes.float32
        x = zeros((samples, *self.inputs), kind, device)
        return x, zeros((samples, *self.targets), dtypes.int64, device)


def gpt_recipe(name: str, config: GPTConfig) -> ModelRecipe:
    """Return the recipe of a GPT of any size."""
    return ModelRecipe(
        name,
        lambda layers, device: GPT(replace(config, n_layer=layers), device),
        lambda model, x, y: model.loss(x, y),
        (config.block_size,),
        (config.block_size,),
        "tokens",
        config.n_layer,
        "transformer.h.",
        ("transformer.wte", "transformer.wpe", "transformer.drop"),
        ("transformer.wte.weight", "lm_head.weight") if config.tie_weights else None,
        TensorSplit(
            columns=("attn.c_attn", "mlp.c_fc"),
            rows=("attn.c_proj", "mlp.c_proj"),
            heads=(("attn", "heads"),),
            embedding="transformer.wte",
            head="lm_head",
            divides=(config.n_head,),
        ),
    )


def _llama(name: str, config: DecoderConfig, context: int | None = None) -> ModelRecipe:
    length = context or config.max_position_embeddings
    return ModelRecipe(
        name,
        lambda layers, device: Decoder(replace(config, num_hidden_layers=layers), device),
        lambda model, x, y: model.loss(x, y),
        (length,),
        (length,),
        "tokens",
        config.num_hidden_layers,
        "model.layers.",
        ("model.embed_tokens", "model.rotary_emb"),
        ("model.embed_tokens.weight", "lm_head.weight") if config.tie_word_embeddings else None,
        TensorSplit(
            columns=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"),
            rows=("self_attn.o_proj", "mlp.down_proj"),
            heads=(("self_attn", "heads"), ("self_attn", "kv_heads")),
            embedding="model.embed_tokens",
            head="lm_head",
            divides=(config.num_attention_heads, config.kv_heads, config.intermediate_size),
        ),
    )


def _bert(name: str, config: BertConfig) -> ModelRecipe:
    return ModelRecipe(
        name,
        lambda layers, device: BertClassifier(replace(config, num_hidden_layers=layers), device=device),
        lambda model, x, y: F.cross_entropy(model(x), y),
        (config.max_position_embeddings,),
        (),
        "tokens",
        config.num_hidden_layers,
        "bert.encoder.layer.",
        ("bert.embeddings",),
        None,
        TensorSplit(
            columns=("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense"),
            rows=("attention.output.dense", "output.dense"),
            heads=(("attention.self", "heads"),),
            embedding="bert.embeddings.word_embeddings",
            head="",
            divides=(config.num_attention_heads, config.intermediate_size),
        ),
    )


def resnet_recipe(name: str, make: Callable[[Device], Module]) -> ModelRecipe:
    """Return the recipe of a network for images of 224 x 224 and 1000 classes, which is not divided into layers."""
    return ModelRecipe(
        name,
        lambda layers, device: make(device),
        lambda model, x, y: F.cross_entropy(model(x), y),
        (3, _IMAGE, _IMAGE),
        (),
        "images",
    )


def _gpt2(layers: int, heads: int, width: int) -> GPTConfig:
    return GPTConfig(n_layer=layers, n_head=heads, n_embd=width)


_PRESETS: dict[str, Callable[[str], ModelRecipe]] = {
    "gpt2-124m": lambda name: gpt_recipe(name, _gpt2(12, 12, 768)),
    "gpt2-355m": lambda name: gpt_recipe(name, _gpt2(24, 16, 1024)),
    "gpt2-774m": lambda name: gpt_recipe(name, _gpt2(36, 20, 1280)),
    "gpt2-1.5b": lambda name: gpt_recipe(name, _gpt2(48, 25, 1600)),
    # Sizes from the config.json of TinyLlama 1.1B, Llama 2 7B and 70B.
    "llama-1b": lambda name: _llama(
        name,
        DecoderConfig(
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=22,
            num_key_value_heads=4,
            max_position_embeddings=2048,
        ),
    ),
    "llama-7b": lambda name: _llama(name, DecoderConfig()),
    "llama-70b": lambda name: _llama(
        name,
        DecoderConfig(
            hidden_size=8192,
            intermediate_size=28672,
            num_hidden_layers=80,
            num_attention_heads=64,
            num_key_value_heads=8,
        ),
    ),
    "bert-base": lambda name: _bert(name, BertConfig()),
    "bert-large": lambda name: _bert(
        name,
        BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    ),
    "resnet18": lambda name: resnet_recipe(name, lambda device: resnet18(_CLASSES, device=device)),
    "resnet50": lambda name: resnet_recipe(name, lambda device: resnet50(_CLASSES, device=device)),
}
MODELS = tuple(_PRESETS)
"""Names of the preset models."""


def find_model(name: str, context: int | None = None) -> ModelRecipe:
    """Return a preset by name, or a model from a configuration file of GPT, Llama or BERT.

    `context` replaces the sequence length. Raises ValueError that lists the known names, and OSError for a file.
    """
    if name.lower() in _PRESETS:
        recipe = _PRESETS[name.lower()](name.lower())
    elif name.endswith(".json"):
        recipe = _from_file(Path(name))
    else:
        expected = f"{', '.join(MODELS)}, or the path of a config.json"
        raise ValueError(message(None, f"no model is called {name!r}", expected=expected))
    return recipe if context is None else _with_context(recipe, context)


def _with_context(recipe: ModelRecipe, context: int) -> ModelRecipe:
    if recipe.unit != "tokens":
        raise ValueError(message(None, f"{recipe.name} takes images", expected="no context"))
    if not 1 <= context <= recipe.inputs[0]:
        raise ValueError(message(None, f"a context of {context}", expected=f"1 to {recipe.inputs[0]} tokens"))
    targets = (context,) if recipe.targets else ()
    return replace(recipe, inputs=(context,), targets=targets)


def _from_file(path: Path) -> ModelRecipe:
    """Read the `config.json` of a Hugging Face model, or the settings of a `GPTConfig`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(message(None, f"{path} is not JSON: {error}", expected="a config.json")) from None
    kind = data.get("model_type") if isinstance(data, dict) else None
    try:
        if kind == "llama":
            return _llama(path.stem, DecoderConfig.from_json(data))
        if kind == "bert":
            return _bert(path.stem, BertConfig.from_json(data))
        if kind == "gpt2" or (isinstance(data, dict) and "n_embd" in data):
            return gpt_recipe(path.stem, GPTConfig.from_json(data))
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None
    expected = "the config.json of a GPT-2, Llama or BERT"
    raise ValueError(message(None, f"{path} has model_type {kind!r}", expected=expected))
