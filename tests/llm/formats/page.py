"""The page docs/model-formats.md: differences of architectures and types, and perplexities of a trained model."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.llm.formats.cases import LENGTH, TYPES
from tests.llm.formats.comparison import FOLDER, LIMIT

PAGE = Path(__file__).parents[3] / "docs" / "model-formats.md"


def page(found: Mapping[str, Any]) -> str:
    """Return the text of the page for results."""
    rows, text = found["cases"], found["perplexity"]
    lines = ["# Formats of language models", ""]
    lines += _wrapped(f"""
        Each row is a case of [the decoders](decoders.md) with rows of 256 weights and random values, written as a folder of
        Hugging Face's form. `polyhal quantize` wrote it in each type, and `polyhal.llm.load` loaded it. A number is the
        largest difference of {LENGTH} tokens' logits, relative to the largest logit, on NumPy: from the decoder with the
        folder's weights (folder, f32), or with the file's weights as the package `gguf` {found["gguf"]} dequantises them.
        All are at most {LIMIT:g}. `python -m tests.llm.formats` computes the page.""")
    types = (FOLDER, *TYPES)
    lines += ["", f"| case | {' | '.join(types)} |", f"|---|{'---:|' * len(types)}"]
    lines += [f"| {name} | {' | '.join(_short(row[t]['difference']) for t in types)} |" for name, row in rows.items()]
    lines += ["", "## Compared with llama.cpp", ""]
    lines += _wrapped(f"""
        llama.cpp (`llama-cpp-python` {found["llama_cpp"]}) reads the same files. A number counts after how many of the
        {LENGTH} tokens both have the same likeliest next token; the last column is the largest difference of logits of the
        f32 file, relative to the largest logit. llama.cpp rounds activations to 8 bits for quantised weights (to 16 bits for
        f16), and reads GELU from a table of 16 bits, so that the likeliest of two nearly equal tokens may change, and the
        experts of a token, too.""")
    lines += ["", f"| case | {' | '.join(TYPES)} | f32, logits |", f"|---|{'---:|' * (len(TYPES) + 1)}"]
    for name, row in rows.items():
        counts = ["–" if row[t]["equal"] is None else str(row[t]["equal"]) for t in TYPES]
        last = "–" if row["f32"]["peer"] is None else _short(row["f32"]["peer"])
        lines.append(f"| {name} | {' | '.join(counts)} | {last} |")
    lines += ["", "## A trained model", ""]
    count = len(text["ids"])
    lines += _wrapped(f"""
        stories260K (260,032 parameters, by Andrej Karpathy) in every type: perplexity of {count} texts of
        {len(text["ids"][0])} tokens, which the model itself drew, and how many of its {text["types"]["f32"]["of"]} greedy
        tokens of llama2.c it writes before another one. Its rows of 64 and 172 weights do not fill blocks of 256, and rows
        of 172 not blocks of 32 either: as in llama.cpp, q5_0, q5_1, q8_0 or iq4_nl replace types of 256, and the last matrix
        of each feed-forward network stays in f16.""")
    lines += ["", "| type | bits per weight | perplexity | llama.cpp | greedy tokens |", "|---|---:|---:|---:|---:|"]
    for kind, row in text["types"].items():
        lines.append(f"| {kind} | {row['bits']:.2f} | {row['ours']:.3f} | {row['theirs']:.3f} | {row['greedy']} |")
    return "\n".join([*lines, ""])


def _short(x: float) -> str:
    return "0" if x == 0 else f"{x:.0e}".replace("e-0", "e-")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)
