"""Comparison of a decoder's logits with the logits of transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

import polyhal as ph
from polyhal.models import Decoder, DecoderConfig, from_checkpoint
from polyhal.models.hugging_face import WITHOUT_EFFECT
from tests.models.architectures.cases import CASES, LENGTH, PADDED, chosen, inputs, weights

EXPECTED = Path(__file__).with_name("expected.json")
LIMIT = 1e-4
"""Largest difference of logits, relative to the largest logit. Sums of up to 48 products in float32, in a few layers."""
MODES = ("at once", "in pieces, with a cache")


@dataclass(frozen=True)
class Expected:
    """Results of transformers for a case."""

    config: Mapping[str, Any]
    """`config.json` as transformers 5 writes it."""
    shapes: Mapping[str, Sequence[int]]
    """Shapes of the tensors of the checkpoint."""
    largest: float
    logits: Sequence[Sequence[float]]

    @classmethod
    def of(cls, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], logits: np.ndarray) -> Self:
        """Choose the committed part."""
        used = {k: v for k, v in config.items() if k not in WITHOUT_EFFECT}
        few = [[round(float(x), 6) for x in row] for row in chosen(logits)]
        return cls(used, {k: list(v) for k, v in shapes.items()}, round(float(np.abs(logits).max()), 6), few)

    def as_data(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return dict(vars(self))


def load() -> dict[str, Expected]:
    """Return the committed results of transformers."""
    return {k: Expected(**v) for k, v in json.loads(EXPECTED.read_text(encoding="utf-8")).items()}


def decoder(name: str, expected: Expected, device: ph.Device | str) -> Decoder:
    """Return the decoder of a case with its weights."""
    state = {key: weights(key, shape) for key, shape in expected.shapes.items()}
    model = Decoder(DecoderConfig.from_json(CASES[name]), device)
    model.load_state_dict(from_checkpoint(CASES[name], state))
    return model.eval()


def logits_of(model: Decoder, mode: str, is_long: bool = False) -> np.ndarray:
    """Return the logits (2, LENGTH, words) of the inputs. The second row is padded on the left."""
    ids, mask = (ph.tensor(x, device=model.device) for x in inputs())
    with ph.no_grad():
        if mode == MODES[0]:
            return model(ids, attention_mask=mask).numpy()
        # A sequence that outgrows the original context of longrope has earlier keys of another rotation in its cache.
        cache, parts, start = model.make_cache(2), [], 0
        for count in (LENGTH,) if is_long else (5, 1, 6):
            end = start + count
            parts.append(model(ids[:, start:end], cache, attention_mask=mask[:, :end]).numpy())
            start = end
        return np.concatenate(parts, 1)


def difference(
    name: str, expected: Expected, mode: str, device: ph.Device | str, logits: np.ndarray | None = None
) -> float:
    """Return the largest difference of a decoder's logits, relative to the largest logit: all of them, or committed ones."""
    got = logits_of(decoder(name, expected, device), mode, "long" in name.split())
    pairs = (chosen(got), np.array(expected.logits))
    if logits is not None:
        pairs = tuple(np.concatenate([x[0], x[1, PADDED:]]) for x in (got, logits))
    return float(np.abs(pairs[0] - pairs[1]).max() / expected.largest)
