"""Make the files in `peft_run`, with transformers and PEFT: a tiny Llama, an untrained adapter, and the losses of training it.

python tests/adapters/make_peft_run.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent / "peft_run"
TOKENS, STEPS, RATE = 32, 20, 1e-2


def batch(step: int) -> np.ndarray:
    """Return the token ids (4, 13) of a step."""
    return np.random.default_rng(step % 4).integers(0, TOKENS, (4, 13))


def main() -> None:
    """Train with AdamW, and write the weights before and the losses of all steps."""
    torch.manual_seed(0)
    sizes = {"vocab_size": TOKENS, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    base = LlamaForCausalLM(
        LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32)
    )
    base.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink()
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, lora_alpha=8, target_modules="all-linear"))
    model.save_pretrained(FOLDER / "adapter")
    (FOLDER / "adapter" / "README.md").unlink()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE)
    losses = []
    for step in range(STEPS):
        ids = torch.tensor(batch(step))
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, TOKENS), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 6))
    versions = {"peft": peft.__version__, "torch": torch.__version__}
    (FOLDER / "losses.json").write_text(json.dumps({**versions, "losses": losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
