"""A language model with its tokenizer: text in, text out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from polyhal import Device, Tensor, no_grad
from polyhal.adapters import load_adapter
from polyhal.generation import WORTH_CAPTURING, GenerationEngine, GenerationRequest, TokenConstraint, TokenStream
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import PolyhalError, SettingError, ShapeError, message
from polyhal.llm.chat_encoder import ChatEncoder
from polyhal.llm.chat_template import ChatTemplate
from polyhal.llm.files import ModelFiles, open_model
from polyhal.llm.grammars import GrammarCompiler
from polyhal.llm.loading import LoadedParts
from polyhal.llm.memory import PlannedModel, check_fits, memory_need, usable_memory
from polyhal.llm.speculation import check_draft, make_proposer
from polyhal.llm.template_errors import ChatTemplateError
from polyhal.llm.tool_calls import ToolCallForm, tool_call_form
from polyhal.models import Decoder, DecoderConfig, Sampling, checkpoint_names
from polyhal.text import PretrainedTokenizer, decode_stream

Messages = Sequence[Mapping[str, Any]]
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
)
"""Names of special tokens that end an answer, whatever a file says."""
_DTYPES = {"f32": dtypes.float32, "f16": dtypes.float16, "bf16": dtypes.bfloat16}
_DEFAULT_CONTEXT = 8192


class LanguageModel:
    """A decoder on a device, with the tokenizer and the chat template of its files."""

    def __init__(self, files: ModelFiles, model: Decoder, tokenizer: PretrainedTokenizer | None, context: int) -> None:
        self.files, self.model, self.context = files, model, context
        self.draft: LanguageModel | None = None
        """A smaller model with the same tokens, which proposes tokens of all answers: speculative decoding."""
        self._tokenizer = tokenizer
        self._templates: dict[str, ChatTemplate] = {}
        model.context_length = context

    @property
    def has_tokenizer(self) -> bool:
        """True if the files have a tokenizer."""
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> PretrainedTokenizer:
        """The tokenizer. Raises an error with the reason if the files have none."""
        return self._tokenizer if self._tokenizer is not None else self.files.load_tokenizer()

    @property
    def stop_ids(self) -> list[int]:
        """Tokens that end an answer."""
        stated = self.files.generation.get("eos_token_id", self.files.config.get("eos_token_id"))
        listed = stated if isinstance(stated, list) else [stated]
        found: set[int | None] = {i for i in listed if type(i) is int}
        if self._tokenizer is not None:
            found |= {self._tokenizer.eos_id}
            ids = {self._tokenizer.id_of(name) for name in _ENDS}
            found |= ids & self._tokenizer.special_ids
        return sorted(i for i in found if type(i) is int)

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiler of grammars for the model's tokens. Raises ImportError without the library `llguidance`."""
        return GrammarCompiler(self.tokenizer, self.model.config.vocab_size, self.stop_ids)

    @property
    def tool_calls(self) -> ToolCallForm:
        """How the model writes calls of tools."""
        templates = self.files.chat_templates
        return tool_call_form(templates.get("tool_use", templates.get("default", "")))

    def template(self, with_tools: bool = False) -> ChatTemplate:
        """Return the chat template. Raises ChatTemplateError if the files have none."""
        templates = self.files.chat_templates
        name = "tool_use" if with_tools and "tool_use" in templates else "default"
        if name not in templates:
            problem = f"{self.files.name} has no chat template"
            raise ChatTemplateError(message("chat", problem, fix="use `polyhal generate`, which continues a text"))
        if name not in self._templates:
            self._templates[name] = ChatTemplate(templates[name])
        return self._templates[name]

    def chat_ids(self, messages: Messages, tools: Messages | None = None, **variables: Any) -> list[int]:
        """Return the tokens of a conversation with the beginning of the answer.

        Names of special tokens in messages and tools are ordinary text; only the template can write these tokens.
        """
        encoder = ChatEncoder(self.tokenizer, self.template(tools is not None))
        return encoder.encode(encoder.render(messages, tools, **variables))

    def ids(self, prompt: str | Messages | Sequence[int]) -> list[int]:
        """Return the tokens of a text, of a conversation, or of token ids."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_bos=True)
        if all(isinstance(x, (int, np.integer)) for x in prompt):
            return [int(x) for x in cast(Sequence[int], prompt)]
        return self.chat_ids(cast(Messages, prompt))

    def stream_ids(
        self,
        prompt: str | Messages | Sequence[int],
        max_tokens: int | None = None,
        *,
        constraint: TokenConstraint | None = None,
        schema: Mapping[str, Any] | None = None,
        regex: str | None = None,
        grammar: str | None = None,
        choices: Sequence[str] | None = None,
        lookup: bool = False,
        **options: Any,
    ) -> TokenStream:
        """Iterate over the tokens of an answer as they are sampled, up to a token of `stop_ids` or the end of the context.

        `options` are keywords of `request`. The answer follows a `constraint` of `grammars`, a JSON `schema`, a regular
        expression `regex`, a `grammar` of Lark's form, or is one of `choices`. The draft model of `load`, or with `lookup`
        the text so far, proposes tokens that are checked several at a time, which leaves the answer as it is. Raises
        ShapeError for a prompt that fills the context, and ConstraintError for an invalid grammar.
        """
        constraint = self._constraint(constraint, schema, regex, grammar, choices)
        request = self.request(prompt, max_tokens, constraint, **options)
        return self.engine(lookup=lookup, captured=request.max_tokens >= WORTH_CAPTURING).submit(request)

    def engine(self, slots: int = 1, *, lookup: bool = False, captured: bool = True) -> GenerationEngine:
        """Make an engine for up to `slots` answers at a time, with its cache. A later answer reuses what it has in common."""
        return GenerationEngine(self.model, slots, captured, make_proposer(self, slots, lookup, captured))

    def request(
        self,
        prompt: str | Messages | Sequence[int],
        max_tokens: int | None = None,
        constraint: TokenConstraint | None = None,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        logprobs: int | None = None,
    ) -> GenerationRequest:
        """Return the request of an answer for an `engine`. Raises ShapeError for a prompt that fills the context.

        The model's files have the values of settings that are None. With `logprobs` the answer's attribute of that name has
        the log-probability of each token, and of that many most likely ones.
        """
        ids = self.ids(prompt)
        room = self.context - len(ids)
        if room < 1:
            problem = f"a prompt of {len(ids)} tokens"
            raise ShapeError(message("stream", problem, expected=f"less than the context of {self.context}"))
        count = room if max_tokens is None else min(max_tokens, room)
        if count < 0:
            raise SettingError(message("stream", f"max_tokens is {max_tokens}", expected="0 or more"))
        sampling = self.sampling(temperature, top_k, top_p).parameters(seed)
        stop_ids = frozenset(self.stop_ids)
        return GenerationRequest(ids, count, sampling, stop_ids, logprobs=logprobs, constraint=constraint)

    def _constraint(self, constraint: TokenConstraint | None, *stated: Any) -> TokenConstraint | None:
        """Return a constraint, or compile the one that is stated. Raises ValueError for several."""
        if sum(x is not None for x in (constraint, *stated)) > 1:
            problem, expected = "several constraints", "one of constraint, schema, regex, grammar and choices"
            raise ValueError(message("stream", problem, expected=expected))
        for name, value in zip(("json_schema", "regex", "lark", "choices"), stated, strict=True):
            if value is not None:
                found: TokenConstraint = getattr(self.grammars, name)(value)
                return found
        return constraint

    def sampling(
        self, temperature: float | None = None, top_k: int | None = None, top_p: float | None = None
    ) -> Sampling:
        """Return the settings of sampling, with defaults of the model's files."""
        stated = self.files.generation
        if temperature is None:
            own = stated.get("temperature")
            temperature = 0.0 if stated.get("do_sample") is False else 0.7 if own is None else float(own)
        top_k = top_k if top_k is not None else stated.get("top_k")
        top_p = top_p if top_p is not None else stated.get("top_p")
        return Sampling(temperature, top_k or None, top_p or None)

    def stream(
        self, prompt: str | Messages | Sequence[int], max_tokens: int | None = None, **options: Any
    ) -> Iterator[str]:
        """Yield the text of an answer as it is sampled. The arguments are the arguments of `stream_ids`."""
        before = self.ids(prompt)
        continues = isinstance(prompt, str)
        yield from decode_stream(
            self.tokenizer, self.stream_ids(before, max_tokens, **options), before if continues else ()
        )

    def chat(self, messages: Messages, max_tokens: int | None = None, **options: Any) -> str:
        """Return the answer to a conversation."""
        return "".join(self.stream(messages, max_tokens, **options))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a vector (hidden size,) per text: the mean of its tokens' last hidden states, in float32."""
        rows: list[np.ndarray] = []
        found: list[Tensor] = []
        handle = self.model.model["norm"].register_forward_hook(lambda module, args, out: found.append(out))
        try:
            for text in texts:
                ids = self.tokenizer.encode(text, add_bos=True)[: self.context] or [self.tokenizer.pad_id]
                with no_grad():
                    self.model(Tensor(np.array([ids], np.int32), device=self.model.device))
                rows.append(found.pop().to(dtypes.float32).numpy()[0].mean(0))
        finally:
            handle.remove()
        return np.stack(rows) if rows else np.zeros((0, self.model.config.hidden_size), np.float32)

    def __repr__(self) -> str:
        return f"LanguageModel({self.files.name}, {self.files.parameters:,} parameters, on {self.model.device})"


def load(
    path: str | os.PathLike[str],
    device: Device | str | None = None,
    dtype: object = None,
    context: int | None = None,
    adapter: str | os.PathLike[str] | None = None,
    *,
    draft: str | os.PathLike[str] | None = None,
    sequences: int = 1,
    cache_dtype: object = None,
) -> LanguageModel:
    """Load a language model from a folder of Hugging Face's form or a GGUF file.

    Weights in formats of blocks stay in them. All others get `dtype`, by default the dtype of the file if the device supports
    it. `context` is the maximum number of tokens of prompt and answer, by default 8192 or the model's own if it is shorter.
    `adapter` is a folder of low-rank adapters in PEFT's form. `draft` is a smaller model with the same tokens, which proposes
    tokens of answers (speculative decoding). `cache_dtype` is the dtype of keys and values of earlier tokens, by
    default the dtype of the weights; int8 takes half of the memory of float16, and rounds a number to a 254th part of its row.
    Raises ModelDoesNotFitError before anything is loaded if the memory does not suffice for both and for `sequences` answers
    at a time, SettingError for another dtype of a cache, ShapeError for a context beyond the model's or a draft model with
    other tokens, and the errors of `open_model` and `load_adapter`.
    """
    files, drafted = open_model(path), None if draft is None else open_model(draft)
    # After files: the fastest device may have to be measured.
    target = device if isinstance(device, Device) else Device(device)
    planned = _planned(files, target, dtype, context, cache_dtype)
    proposing = (
        None if drafted is None else _planned(drafted, target, dtype, planned.context, cache_dtype, shorter=True)
    )
    check_fits(planned, target, proposing, sequences)
    found = _loaded(planned, target, adapter)
    if proposing is not None:
        found.draft = _loaded(proposing, target)
        check_draft(found, found.draft)
    return found


def _planned(
    files: ModelFiles, device: Device, dtype: object, context: int | None, cache_dtype: object, shorter: bool = False
) -> PlannedModel:
    """Choose context and dtypes. With `shorter` the context may be shorter than `context`. Raises ShapeError."""
    config = DecoderConfig.from_json(files.config)
    longest = config.max_position_embeddings
    length = _DEFAULT_CONTEXT if context is None else context
    if context is None or shorter:
        length = min(length, longest)
    if not 1 <= length <= longest:
        raise ShapeError(message("load", f"context {length}", expected=f"1 to {longest}"))
    kind = as_dtype(dtype) if dtype is not None else _dtype_for(files, device)
    return PlannedModel(files, config, length, kind, kind if cache_dtype is None else _cache_dtype(cache_dtype, device))


def _cache_dtype(dtype: object, device: Device) -> DType:
    """Return the dtype of a cache. Raises SettingError unless the device computes in it."""
    usual = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int8)
    possible = {d.name: d for d in usual if d in device.capabilities.compute}
    try:
        return possible[as_dtype(dtype).name]
    except (TypeError, KeyError):
        problem = f"cache_dtype is {dtype}"
        expected = f"one of {', '.join(possible)}"
        raise SettingError(message("load", problem, expected=expected, device=device)) from None


def _loaded(planned: PlannedModel, device: Device, adapter: str | os.PathLike[str] | None = None) -> LanguageModel:
    files = planned.files
    with no_grad():
        parts = LoadedParts(files.weights, device, planned.dtype)
        model = Decoder(planned.config, device, planned.dtype, parts=parts).eval()
        parts.load_rest(model)
    if adapter is not None:
        load_adapter(model, adapter, checkpoint_names(files.config))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.cache_dtype = planned.cache_dtype
    try:
        tokenizer = files.load_tokenizer()
    except (PolyhalError, FileNotFoundError):
        tokenizer = None
    return LanguageModel(files, model, tokenizer, planned.context)


def estimate(files: ModelFiles, device: Device, context: int) -> tuple[int, int | None, int]:
    """Return the bytes that a model needs on a device, the bytes that it may take, and the model's own context.

    The need includes a context of `context` tokens, or the model's own if that is shorter.
    """
    config = DecoderConfig.from_json(files.config)
    length = config.max_position_embeddings
    dtype = _dtype_for(files, device)
    need = memory_need(files, config, min(context, length), dtype, dtype)
    return need.total, usable_memory(device), length


def _dtype_for(files: ModelFiles, device: Device) -> DType:
    """Return the dtype for weights that are not in blocks: of the file, or float32 where the device lacks it.

    If most weights are blocks, it is float16 on graphics cards, and float32 on processors, which compute in it.
    """
    is_processor = device.info.type is DeviceType.CPU
    beside_blocks = dtypes.float32 if is_processor or files.format == "f64" else dtypes.float16
    found = _DTYPES.get(files.format, beside_blocks)
    return found if found in device.capabilities.compute else dtypes.float32
