"""Rules that cut a text into words before byte-level BPE, by the names that GGUF files give them.

A rule is a list of regular expressions. Each cuts the pieces of the one before into matches and the text between them.
Names and rules are facts of the format, as llama.cpp reads it (`tokenizer.ggml.pre`).
"""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(contractions: str, digits: str) -> str:
    """Return the rule of cl100k's form, with this many digits per piece."""
    return "|".join(part for part in (contractions, _LETTERS, digits, _OTHERS, _LINES) if part)


def _cased(ending: str, digits: str) -> str:
    """Return the rule of o200k's form, which also cuts where a capital letter follows a small one."""
    start = r"[^\r\n\p{L}\p{N}]?"
    words = f"{start}{_UPPER}*{_LOWER}+{ending}|{start}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is cut, whether whole words of the vocabulary need no merges, and whether a text begins with BOS."""

    expressions: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_LLAMA3 = PreTokenizer((_words(_CONTRACTIONS, r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True)
_CL100K = PreTokenizer((_words(_CONTRACTIONS, r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_words(_CONTRACTIONS, r"\p{N}"),))
_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN = PreTokenizer((_GPT2,))
_DEEPSEEK = r"[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK3_CJK = r"[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK3_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA3
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _CL100K),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "kormo"), _QWEN2),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), _SINGLE_DIGITS
    ),
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat", "a.x-4.0"), _PLAIN),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK, r"\p{N}")),
    "deepseek-v3": PreTokenizer((r"\p{N}{1,3}", _DEEPSEEK3_CJK, _DEEPSEEK3_WORDS)),
    "gpt-4o": PreTokenizer((_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),)),
    "llama4": PreTokenizer((_cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"),)),
    "tekken": PreTokenizer((_cased("", r"\p{N}"),), ignore_merges=True, add_bos=True),
}
"""Rules by name."""
