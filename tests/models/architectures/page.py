"""The page docs/decoders.md: architectures of decoders, and their differences from transformers."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from polyhal.models import ARCHITECTURES
from tests.models.architectures.cases import CASES
from tests.models.architectures.comparison import LIMIT, MODES

PAGE = Path(__file__).parents[3] / "docs" / "decoders.md"


def page(version: str, rows: Mapping[str, Sequence[float]]) -> str:
    """Return the text of the page, for differences by case and mode."""
    text = f"""
        `polyhal.models.Decoder` is one decoder with parts that a configuration chooses. `DecoderConfig.from_json` reads the
        `config.json` of the architectures below, as transformers 4 and 5 write it, and refuses settings by name that it does
        not know. `from_checkpoint` returns the weights of a Hugging Face checkpoint under the decoder's names. Each row
        compares the logits of a model with two layers and random weights, for a batch with padding on the left, with
        transformers {version} in float64: the largest difference relative to the largest logit, in float32 on NumPy, is at
        most {LIMIT:g}. `python -m tests.models.architectures` computes the table."""
    lines = ["# Architectures of decoders", "", *_wrapped(text), ""]
    lines += [f"| architecture | `model_type` | case | {' | '.join(MODES)} |", "|---|---|---|---:|---:|"]
    for name, differences in rows.items():
        kind = CASES[name]["model_type"]
        cells = " | ".join(f"{d:.0e}" for d in differences)
        lines.append(f"| {ARCHITECTURES[kind].title} | `{kind}` | {name} | {cells} |")
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)
