"""`polyhal generate`: text from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyhal.text import BPETokenizer, CharTokenizer, decode_stream

from .conftest import Command


def test_equal_seeds_continue_a_prompt_equally(polyhal: Command, trained: Path) -> None:
    options = ["--prompt", "9 green", "--max-tokens", 40, "--device", "numpy", "--temperature", 1.0]
    first, second, other = (polyhal("generate", trained, *options, "--seed", s) for s in (1, 1, 2))
    assert first.code == 0, first.err
    assert first.out.startswith("9 green")
    assert first.out == second.out != other.out
    assert len(first.out) == len("9 green") + 40 + 1


@pytest.mark.parametrize("name", ["best", "last", "."])
def test_runs_and_their_checkpoints_are_understood(polyhal: Command, trained: Path, name: str) -> None:
    assert polyhal("generate", trained / name, "--max-tokens", 2, "--device", "numpy").code == 0


@pytest.mark.parametrize("options", [["--temperature", 0], ["--top-k", 1], ["--top-p", 1e-6]])
def test_settings_for_the_likeliest_token_agree(polyhal: Command, trained: Path, options: list[object]) -> None:
    greedy = polyhal(
        "generate", trained, "--prompt", "on the", "--max-tokens", 10, "--temperature", 0, "--device", "numpy"
    )
    other = polyhal("generate", trained, "--prompt", "on the", "--max-tokens", 10, *options, "--device", "numpy")
    assert other.out == greedy.out


@pytest.mark.slow
def test_characters_of_several_bytes_are_written_whole() -> None:
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[data]'")
    text = "naïve façade – Ελλάδα 漢字 🎈 end"
    tokenizer = BPETokenizer.train(text, 258)
    written = list(decode_stream(tokenizer, tokenizer.encode(text)))
    assert "".join(written) == text
    assert not any("\ufffd" in piece for piece in written)


def test_unknown_characters_are_marked_and_the_others_are_kept() -> None:
    tokenizer = CharTokenizer.train("abc")
    assert "".join(decode_stream(tokenizer, tokenizer.encode("a?"))) == "a\ufffd"
