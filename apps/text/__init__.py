"""Tokenizers."""

from polyhal.text.bpe import BPETokenizer
from polyhal.text.characters import CharTokenizer
from polyhal.text.gguf_vocabulary import tokenizer_from_gguf
from polyhal.text.gguf_writing import gguf_from_tokenizer
from polyhal.text.incremental import IncrementalDecoder, decode_stream
from polyhal.text.pretrained import PretrainedTokenizer
from polyhal.text.token_bytes import TokenText, TokenTexts
from polyhal.text.tokenizer import Tokenizer, load_tokenizer, text_of, without_text

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "IncrementalDecoder",
    "PretrainedTokenizer",
    "TokenText",
    "TokenTexts",
    "Tokenizer",
    "decode_stream",
    "gguf_from_tokenizer",
    "load_tokenizer",
    "text_of",
    "tokenizer_from_gguf",
    "without_text",
]
