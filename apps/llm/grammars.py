"""Grammars of answers: JSON schemas, regular expressions, Lark grammars and choices, by the `llguidance` library."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyhal.generation import ConstraintError
from polyhal.hal.errors import message
from polyhal.text import PretrainedTokenizer, TokenTexts

_SHORTENED = "<non-verbose/>"
"""End of messages of the library that it shortened."""
_LONGEST = 1 << 18
"""Maximum number of characters of a grammar."""
_STATES = 50_000
"""Maximum number of states of a grammar's lexer, which have 1 to 2 kB each."""
_JSON: Mapping[str, Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Python and most training texts write it. Without a choice of spaces, keys and brackets need no step of the model."""

_TRIAL = '{"a": [1, "é b"]}\n'


class GrammarCompiler:
    """Compiles grammars for the tokens of a model. Every method raises ConstraintError for an invalid or too large grammar."""

    def __init__(self, tokenizer: PretrainedTokenizer, vocabulary: int, stop_ids: Sequence[int]) -> None:
        """Make the library's form of the tokenizer. `vocabulary` is the number of logits.

        Raises ImportError without the library.
        """
        self._library = _library()
        self._lock = threading.Lock()
        size = max(vocabulary, tokenizer.vocab_size)
        # A model without stop tokens has an end that is beyond its tokens, so that a grammar never allows it.
        ends = [i for i in stop_ids if i < size] or [size]
        self._tokens = self._tokens_of(tokenizer, max(size, ends[-1] + 1), ends)

    def _tokens_of(self, tokenizer: PretrainedTokenizer, size: int, ends: list[int]) -> Any:
        """Return the library's form of a tokenizer; one by bytes of tokens if the library reads or splits texts wrongly."""
        data = json.dumps(json.loads(tokenizer.to_json())["tokenizer"])
        try:
            found = self._library.LLTokenizer(data, n_vocab=size, eos_token=ends)
        except ValueError:
            found = None
        if found is None or found.decode_bytes(found.tokenize_str(_TRIAL)) != _TRIAL.encode():
            wrapper = self._library.TokenizerWrapper(_LongestTokens(tokenizer, size, ends[0]))
            found = self._library.LLTokenizer(wrapper, n_vocab=size, eos_token=ends)
        return found

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """Compile a JSON schema."""
        text = self.json_options(schema)
        try:
            grammar = self._library.LLMatcher.grammar_from_json_schema(text)
        except ValueError as error:
            raise _refused("JSON schema", str(error)) from None
        return self._compile("JSON schema", grammar)

    def json_options(self, schema: Mapping[str, Any]) -> str:
        """Return a schema as JSON text, with the options of the library that all schemas share."""
        if not isinstance(schema, Mapping):
            raise ConstraintError(message("grammar", f"the schema is {schema!r:.60}", expected="a JSON object"))
        try:
            text = json.dumps({**schema, "x-guidance": _JSON}, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConstraintError(message("grammar", f"the schema is not JSON: {error}")) from None
        _check_length("JSON schema", text)
        return text

    def regex(self, pattern: str) -> Grammar:
        """Compile a regular expression of the whole answer, without look-around and back-references."""
        _check_length("regular expression", pattern)
        return self._compile("regular expression", self._library.LLMatcher.grammar_from_regex(pattern))

    def lark(self, text: str) -> Grammar:
        """Compile a grammar in the library's form of Lark's."""
        _check_length("grammar", text)
        return self._compile("grammar", self._library.LLMatcher.grammar_from_lark(text))

    def choices(self, texts: Sequence[str]) -> Grammar:
        """Compile a choice among texts."""
        if not texts:
            raise ConstraintError(message("grammar", "no choices", expected="at least one text"))
        return self.lark("start: " + " | ".join(json.dumps(text) for text in texts))

    def _compile(self, kind: str, grammar: str) -> Grammar:
        limits = self._library.LLParserLimits(max_lexer_states=_STATES, verbose_errors=False)
        with self._lock:
            matcher = self._library.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
            first = matcher.deep_copy()
            if not first.is_error():
                first.compute_bitmask()  # finds grammars without a first token, such as a reference to itself
        if first.is_error():
            raise _refused(kind, first.get_error())
        return Grammar(matcher)


class _LongestTokens:
    """Splits texts into the longest tokens by their bytes, in the form that the library expects of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: PretrainedTokenizer, size: int, eos_token_id: int) -> None:
        texts = TokenTexts(tokenizer)
        known = min(size, tokenizer.vocab_size)
        self.eos_token_id = eos_token_id
        self.special_token_ids = sorted(tokenizer.special_ids | {*range(known, size)})
        special = set(self.special_token_ids)
        self.tokens = [b"" if i in special else texts[i].data or b"" for i in range(known)] + [b""] * (size - known)
        self._ids = {data: i for i, data in reversed([*enumerate(self.tokens)]) if data}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        """Return token ids; bytes without a token are left out."""
        ids, place = [], 0
        while place < len(text):
            lengths = range(min(self._longest, len(text) - place), 0, -1)
            length = next((n for n in lengths if text[place : place + n] in self._ids), 0)
            if length:
                ids.append(self._ids[text[place : place + length]])
            place += length or 1
        return ids


class Grammar:
    """A compiled grammar, which many sequences may use."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def start(self) -> GrammarState:
        """Return the state before the first token."""
        return GrammarState(self._matcher.deep_copy())


class GrammarState:
    """The place of a sequence in a grammar."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._row: np.ndarray | None = None

    @property
    def is_complete(self) -> bool:
        """True if no token may follow."""
        return bool(self._matcher.is_stopped() and not self._matcher.is_error())

    def fill(self, row: np.ndarray) -> None:
        """Store which tokens may follow as bits of a row of uint32 words. Raises ConstraintError beyond the limits."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise _refused("grammar", self._matcher.get_error())
        whole = row.view(np.uint8)
        count = min(whole.size, bits.size)
        whole[:count] = bits[:count]

    def accept(self, token: int) -> bool:
        """Add a token; no-op that returns False if it may not follow."""
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    def retract(self, count: int) -> None:
        """Remove the last tokens."""
        if count:
            self._matcher.rollback(count)

    def forced(self, most: int) -> list[int]:
        """Return the next tokens, at most `most`, that leave no choice."""
        found: list[int] = self._matcher.compute_ff_tokens() if most else []
        return found[:most]


def _check_length(kind: str, text: str) -> None:
    if len(text) > _LONGEST:
        problem = f"the {kind} has {len(text)} characters"
        raise ConstraintError(message("grammar", problem, expected=f"at most {_LONGEST}"))


def _refused(kind: str, reason: str) -> ConstraintError:
    return ConstraintError(
        message("grammar", f"the {kind} is refused: {reason.removesuffix(_SHORTENED).strip()[:500]}")
    )


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        problem = "grammars need the package llguidance"
        raise ImportError(message("grammar", problem, fix='pip install "polyhal[llm]"')) from error
    return llguidance
