"""Options of requests for text: fields that chat and plain completions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.generation import MOST_ALTERNATIVES, SamplingParameters
from polyhal.server.constraints import called_tools, read_constraint
from polyhal.server.errors import RequestError
from polyhal.server.fields import Fields, shown
from polyhal.server.interfaces import ServedModel

SHARED = (
    "model",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "n",
    "stop",
    "stream",
    "stream_options",
    "logprobs",
    "response_format",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
)
IGNORED = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls")
"""Fields of OpenAI's interface without influence on the tokens of an answer."""
_LARGEST = 2**31 - 1
_STOPS = 16


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a request for text. `max_tokens` is None for the rest of the context."""

    max_tokens: int | None
    sampling: SamplingParameters
    stops: tuple[str, ...]
    n: int
    stream: bool
    include_usage: bool
    logprobs: int | None = None
    """Number of alternatives per token; None for no log-probabilities."""
    echo: bool = False
    """True if the answer begins with the prompt."""
    constraint: tuple[str, Any] | None = None
    """Kind and value of the constraint that the answer follows, as `ServedModel.constraint` compiles it."""
    tools: tuple[str, ...] = ()
    """Names of tools whose calls are found in the answer."""


def read_options(fields: Fields, model: ServedModel, choices: int, default_tokens: int | None) -> Options:
    """Read the options of a request. Raises RequestError for a value that is wrong or not supported."""
    check_model(fields, model)
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    max_tokens = fields.integer(name, default_tokens, 0, _LARGEST)
    n = fields.integer("n", 1, 1, choices)
    assert n is not None
    stream = fields.flag("stream")
    stream_options = fields.mapping("stream_options")
    if stream_options and not stream:
        fields.refuse("stream_options", "stream_options only with stream true")
    include_usage = stream_options.get("include_usage", False)
    if type(include_usage) is not bool:
        fields.refuse("stream_options", "include_usage true or false")
    stops = fields.strings("stop", _STOPS)
    sampling, logprobs, echo = _sampling(fields, model), _logprobs(fields), fields.flag("echo")
    tools = called_tools(fields)
    names = tuple(tool["function"]["name"] for tool in tools)
    constraint = read_constraint(fields, tools)
    return Options(max_tokens, sampling, stops, n, stream, include_usage, logprobs, echo, constraint, names)


def check_model(fields: Fields, model: ServedModel) -> None:
    """Raise RequestError if a request is for another model than the served one."""
    if "model" in fields and fields.body["model"] != model.name:
        problem, expected = f"model {shown(fields.body['model'])} is not served here", shown(model.name)
        raise RequestError(problem, expected=expected, status=404, param="model", code="model_not_found")


def _sampling(fields: Fields, model: ServedModel) -> SamplingParameters:
    defaults = model.defaults
    top_k = fields.body.get("top_k", int(defaults.get("top_k", 0)))
    if top_k == -1 and type(top_k) is int:  # some clients write "all tokens" so
        top_k = 0
    elif "top_k" in fields:
        top_k = fields.integer("top_k", 0, 0, _LARGEST)
    return SamplingParameters(
        temperature=fields.number("temperature", defaults.get("temperature", 1.0), 0, 100),
        top_k=top_k,
        top_p=fields.number("top_p", defaults.get("top_p", 1.0), 0, 1, above=True),
        min_p=fields.number("min_p", 0.0, 0, 1),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0, 100, above=True),
        presence_penalty=fields.number("presence_penalty", 0.0, -2, 2),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2, 2),
        logit_bias=_logit_bias(fields, model.tokenizer.vocab_size),
        seed=_seed(fields),
    )


def _seed(fields: Fields) -> int | None:
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    return None if seed is None else seed % 2**63


def _logit_bias(fields: Fields, vocabulary: int) -> Mapping[int, float]:
    bias: dict[int, float] = {}
    for key, value in fields.mapping("logit_bias").items():
        is_token = key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocabulary
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -100 <= value <= 100
        if not (is_token and is_number):
            problem = f"logit_bias has {shown(key)}: {shown(value)}"
            expected = f"tokens from 0 to {vocabulary - 1} with numbers from -100 to 100"
            raise RequestError(problem, expected=expected, param="logit_bias")
        bias[int(key)] = float(value)
    return bias


def _logprobs(fields: Fields) -> int | None:
    """Return the number of alternatives: a chat states it in a field of its own, with a flag."""
    if "messages" not in fields:
        return fields.integer("logprobs", None, 0, MOST_ALTERNATIVES)
    count = fields.integer("top_logprobs", None, 0, MOST_ALTERNATIVES)
    if fields.flag("logprobs"):
        return count or 0
    if count is not None:
        fields.refuse("top_logprobs", "top_logprobs only with logprobs true")
    return None
