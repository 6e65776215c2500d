"""A decoder whose parts are chosen by data: Llama, Mistral, Qwen, Gemma, Phi, OLMo, GPT-2, DeepSeek and others.

State-dict keys equal Hugging Face's `LlamaForCausalLM`, with further names for further parts. `DecoderConfig.from_json` reads
their settings, and `from_checkpoint` their weights. `load_llama2c` reads the files of llama2.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal import dtypes
from polyhal.models.causal import CausalModel, last_rows
from polyhal.models.decoder_config import DecoderConfig
from polyhal.models.decoder_layers import DecoderCall, DecoderLayer
from polyhal.models.decoder_parts import Parts
from polyhal.models.masks import visibility, within
from polyhal.nn import KVCache, Module, ModuleDict, ModuleList, RotaryEmbedding, init

if TYPE_CHECKING:
    from polyhal.parallel import Group


class Decoder(CausalModel):
    """Token ids (B, T) to logits of the next token (B, T, vocab_size).

    `parts` makes the layers and initialises their weights, such as a loader's; by default they are drawn.
    """

    def __init__(
        self,
        config: DecoderConfig,
        device: Device | str | None = None,
        dtype: object = None,
        parts: Parts | None = None,
    ) -> None:
        super().__init__()
        c = self.config = config
        self.context_length = c.max_position_embeddings
        made = parts or Parts(device, dtype)
        layers = range(c.num_hidden_layers)
        tables = {"embed_tokens": made.embedding("model.embed_tokens", c.vocab_size, c.hidden_size)}
        if c.positions == "learned":
            places = made.embedding("model.embed_positions", c.max_position_embeddings, c.hidden_size)
            tables["embed_positions"] = places
        self.model = ModuleDict(
            {
                **tables,
                "layers": ModuleList(DecoderLayer(c, made, i) for i in layers),
                "norm": made.norm("model.norm", c.hidden_size, c),
                **_rotary(c, made.device),
            }
        )
        if c.tie_word_embeddings:
            self.lm_head = made.tied("lm_head", self.model["embed_tokens"])
        else:
            self.lm_head = made.linear("lm_head", c.hidden_size, c.vocab_size, False)
        if parts is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights from a normal distribution; norms start as the identity, biases at 0."""
        for name, p in self.named_parameters():
            if p.ndim >= 2:
                init.normal_(p, 0.0, self.config.initializer_range)
            elif name.endswith("bias"):
                init.zeros_(p)

    @property
    def _example(self) -> Tensor:
        """A parameter that is never quantised."""
        weight: Tensor = self.model["norm"].weight
        return weight

    @property
    def device(self) -> Device:
        """Device of the weights."""
        return self._example.device

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        last_only: bool | Tensor = False,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, vocab_size), or (B, 1, vocab_size) of the last tokens, or of places (B,), by `last_only`.

        With a cache, `ids` continue its positions, and are added to it. `attention_mask` (B, keys) is 0 at padding; other
        masks broadcast to (B, heads, T, keys), bool or added to the scores. Raises ShapeError beyond the context.
        """
        self.check_context(ids, cache)
        count = ids.shape[1]
        c, parts = self.config, self.model
        mask, places = visibility("Decoder", ids, attention_mask, cache)
        call = DecoderCall(self._angles(places, count), {None: mask}, cache)
        if c.sliding_window is not None:
            near = within(mask, c.sliding_window, count, ids.device) if cache is None else mask
            call.masks[c.sliding_window] = near
        x = parts["embed_tokens"](ids)
        if c.embedding_scale != 1.0:
            x = x * c.embedding_scale
        if c.positions == "learned":
            x = x + parts["embed_positions"](_numbers(count, ids.device) if places is None else places)
        rotary = parts["rotary_emb"] if c.positions == "rotary" else None
        for layer in parts["layers"]:
            x = layer(x, rotary, call)
        if cache is not None:
            cache.advance(count)
        x = last_rows(x, last_only)
        logits: Tensor = self.lm_head(parts["norm"](x))
        if c.logit_scale != 1.0:
            logits = logits * c.logit_scale
        if c.logit_softcap is not None:
            logits = ph.tanh(logits / c.logit_softcap) * c.logit_softcap
        return logits

    def _angles(self, places: Tensor | None, count: int) -> dict[bool, tuple[Tensor, Tensor]]:
        """Return cosines and sines of the tokens, for layers without and with the window's rotary base."""
        tables: dict[bool, str] = {False: "rotary_emb", True: "rotary_emb_near"}
        found: dict[bool, tuple[Tensor, Tensor]] = {}
        for is_near, name in tables.items():
            if name not in self.model:
                continue
            table = self.model[name]
            if "rotary_emb_long" in self.model and not is_near:
                found[is_near] = self._by_length(places, count)
            elif places is not None:
                found[is_near] = table.angles_at(places[:, None])
            else:
                found[is_near] = table.angles(0, count)
        return found

    def _by_length(self, places: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
        """Return the angles for short or long sequences, by the position of the last token (longrope)."""
        short, long = self.model["rotary_emb"], self.model["rotary_emb_long"]
        if places is None:
            places = _numbers(count, self.device)[None]
        is_long = ph.greater_equal(places[:, -1:], short.max_length)[:, :, None, None]
        near = short.angles_at(ph.clip(places, None, short.max_length - 1)[:, None])
        far = long.angles_at(places[:, None])
        cos, sin = (ph.where(is_long, b, a) for a, b in zip(near, far, strict=True))
        return cos, sin

    def make_cache(self, batch: int = 1, capacity: int | None = None, dtype: object = None) -> KVCache:
        """Make an empty cache for `capacity` positions, by default the context length."""
        c = self.config
        length = self.context_length if capacity is None else min(capacity, self.context_length)
        width = c.head_width if c.latent is None else max(c.head_width, c.latent.value_width)
        kind = dtype or self.cache_dtype or self._example.dtype
        return KVCache(c.num_hidden_layers, batch, c.kv_heads, length, width, kind, self.device)

    def tensor_parallel_vocabulary(self, group: Group, shares: Sequence[float] | None, gather_logits: bool) -> None:
        """Divide the tables of tokens and logits among devices, in place."""
        from polyhal.parallel import divide_vocabulary

        divide_vocabulary(self.model, "embed_tokens", self, group, shares, gather_logits)


def _rotary(c: DecoderConfig, device: Device | str | None) -> dict[str, Module]:
    """Return the tables of angles that the layers use."""
    if c.positions != "rotary":
        return {}
    scaling, length = c.rope_scaling, c.max_position_embeddings

    def table(theta: float, rule: Any, positions: int) -> Module:
        return RotaryEmbedding(c.rotary_width, positions, theta, c.rope_interleaved, device, scaling=rule)

    tables = {"rotary_emb": table(c.rope_theta, scaling, length)}
    if c.window_rope_theta is not None:
        tables["rotary_emb_near"] = table(c.window_rope_theta, None, length)
    long = None if scaling is None else scaling.for_long_sequences
    trained = None if scaling is None else scaling.original_max_position_embeddings
    if long is not None and trained is not None and trained < length:
        tables["rotary_emb"] = table(c.rope_theta, scaling, trained)
        tables["rotary_emb_long"] = table(c.rope_theta, long, length)
    return tables


def _numbers(count: int, device: Device) -> Tensor:
    """Return the positions of `count` tokens without a cache."""
    numbers: Tensor = ph.arange(0, count, 1, dtypes.int32, device=device)
    return numbers
