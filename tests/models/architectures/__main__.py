"""Compute expected logits with transformers, compare decoders with them, and write the page docs/decoders.md:
`python -m tests.models.architectures`.

It needs transformers 5 and PyTorch, and downloads nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.models import ARCHITECTURES, DecoderConfig
from tests.models.architectures.cases import CASES, inputs, weights
from tests.models.architectures.comparison import EXPECTED, Expected, difference
from tests.models.architectures.page import PAGE, page

os.environ["HF_HUB_OFFLINE"] = "1"


def compute(settings: dict[str, Any]) -> tuple[Expected, np.ndarray]:
    """Return the committed part of a case, and all logits, computed by transformers in float64."""
    import torch
    import transformers
    from safetensors.numpy import load_file

    ids, mask = inputs()
    kind = settings["model_type"]
    config = transformers.AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if k != "model_type"})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        state = load_file(Path(folder) / "model.safetensors")
        drawn = {name: weights(name, x.shape) for name, x in state.items()}
        torch_state = {name: torch.from_numpy(x) for name, x in drawn.items()}
        from safetensors.torch import save_file

        save_file(torch_state, Path(folder) / "model.safetensors", {"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", experts_implementation="eager", dtype=torch.float64
        ).eval()
    logits = np.zeros((*ids.shape, model.config.vocab_size))
    for row, (sequence, seen) in enumerate(zip(ids, mask, strict=True)):  # each without its padding
        with torch.no_grad():
            logits[row, seen > 0] = model(torch.from_numpy(sequence[seen > 0][None]), use_cache=False).logits[0].numpy()
    return Expected.of(stored, {name: x.shape for name, x in drawn.items()}, logits), logits


def check_defaults() -> None:
    """Raise ValueError if settings that are absent from `config.json` have other values than in transformers."""
    import transformers

    for kind in ARCHITECTURES:
        stored = transformers.AutoConfig.for_model(kind).to_dict()
        given = {"num_experts_per_tok": 6} if kind == "deepseek_v2" else {}  # which has no default
        ours, theirs = (DecoderConfig.from_json({**d, **given}) for d in ({"model_type": kind}, stored))
        if ours != theirs:
            raise ValueError(f"defaults of {kind}:\n{ours}\n{theirs}")


def main() -> int:
    """Write the expected logits and the page; return 1 if a decoder differs."""
    import transformers

    from tests.models.architectures.comparison import LIMIT, MODES

    check_defaults()
    found, rows = {}, {}
    for name, settings in CASES.items():
        expected, logits = compute(settings)
        found[name] = expected.as_data()
        rows[name] = [difference(name, expected, mode, "numpy", logits) for mode in MODES]
        print(f"{name}: {', '.join(f'{d:.1e}' for d in rows[name])}", flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(data)}" for name, data in found.items())
    EXPECTED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    PAGE.write_text(page(transformers.__version__, rows), encoding="utf-8")
    return int(any(d > LIMIT for row in rows.values() for d in row))


if __name__ == "__main__":
    sys.exit(main())
