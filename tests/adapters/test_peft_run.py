"""An adapter of PEFT's is loaded and trained: the losses are PEFT's (see `make_peft_run.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import polyhal as ph
from polyhal.adapters import load_adapter
from polyhal.models import Decoder, DecoderConfig
from polyhal.nn import functional as F

FOLDER = Path(__file__).parent / "peft_run"
TOKENS, RATE = 32, 1e-2


def test_training_an_adapter_of_peft_gives_its_losses() -> None:
    model = Decoder(DecoderConfig.from_json(json.loads((FOLDER / "config.json").read_text())), device="numpy")
    model.load_state_dict(ph.serialize.load(FOLDER / "model.safetensors", device="numpy"))
    load_adapter(model, FOLDER / "adapter")
    optimizer = ph.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    expected = json.loads((FOLDER / "losses.json").read_text())["losses"]
    losses = []
    for step in range(len(expected)):
        ids = ph.tensor(np.random.default_rng(step % 4).integers(0, TOKENS, (4, 13)), device="numpy")
        loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, TOKENS), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Both compute in float32: 20 steps of Adam amplify differences of the last digit to about 1e-6.
    np.testing.assert_allclose(losses, expected, atol=1e-5)
