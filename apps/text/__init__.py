"""Tokenizers."""

from polyhal.text.bpe import BPETokenizer
from polyhal.text.characters import CharTokenizer
from polyhal.text.tokenizer import Tokenizer, load_tokenizer, without_text

__all__ = ["BPETokenizer", "CharTokenizer", "Tokenizer", "load_tokenizer", "without_text"]
