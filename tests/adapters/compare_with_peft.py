"""Train adapters with PEFT and with Polyhal, write both curves of the loss, and load each adapter in both libraries.

Needs transformers, PEFT and PyTorch. Model, data, order, schedule and first adapters are equal; of QLoRA also the quantised
weights, which PEFT sees as floats. Exits with an error if losses differ by more than 1 %. `make generate` writes the results
in `peft_losses.json` as a table of docs/language-models.md.

python tests/adapters/compare_with_peft.py
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import polyhal as ph
from polyhal.adapters import load_adapter, save_adapter
from polyhal.finetune import Example, TuneOptions, Tuner, arrange
from polyhal.hal.quantization.formats import dequantize, quantize
from polyhal.models import Decoder, DecoderConfig
from polyhal.nn import Linear, QuantizedLinear
from polyhal.training import share_of_peak

TOKENS, LENGTH = 64, 24
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
TOLERANCE = 0.01
RESULTS = Path(__file__).parent / "peft_losses.json"


def examples() -> list[Example]:
    """Return arithmetic progressions modulo the number of tokens: their third token can be predicted."""
    rng = np.random.default_rng(0)
    starts, strides = rng.integers(0, TOKENS, 32), rng.integers(1, 4, 32)
    ids = (starts[:, None] + strides[:, None] * np.arange(LENGTH)) % TOKENS
    return [Example(row.tolist(), [False, False, *[True] * (LENGTH - 2)]) for row in ids]


def base(kind: str | None, device: str) -> tuple[LlamaForCausalLM, Decoder]:
    """Return a model in both libraries, whose inner layers have weights of a format of blocks if `kind` is given."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=TOKENS, **SIZES, num_key_value_heads=2, max_position_embeddings=LENGTH)
    theirs = LlamaForCausalLM(config)
    ours = Decoder(DecoderConfig.from_json(config.to_dict()), device=device)
    for name, module in theirs.named_modules():
        if kind is not None and isinstance(module, torch.nn.Linear) and name != "lm_head":
            blocks = quantize(module.weight.detach().numpy(), kind)
            module.weight.data = torch.tensor(dequantize(blocks, kind).reshape(module.weight.shape))
    ours.load_state_dict({n: ph.tensor(p.detach().numpy(), device=device) for n, p in theirs.state_dict().items()})
    for name, layer in list(ours.named_modules()):
        if kind is not None and isinstance(layer, Linear) and name != "lm_head":
            ours.set_submodule(name, QuantizedLinear.quantize(layer.weight.numpy(), kind, device=device))
    return theirs, ours


def curves(kind: str | None, steps: int, device: str, folder: Path) -> dict[str, Any]:
    """Return the losses of PEFT and of Polyhal, and the difference of logits of exchanged adapters."""
    theirs, ours = base(kind, device)
    adapted: Any = peft.get_peft_model(theirs, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    adapted.save_pretrained(folder / "theirs")
    settings = load_adapter(ours, folder / "theirs")
    options = TuneOptions(steps=steps, batch_size=8, lr=2e-2, warmup=5, weight_decay=0.01)
    rows = arrange(examples(), LENGTH, packing=False)
    tuner = Tuner(ours, settings, options, rows)
    trained = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=options.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: share_of_peak(step, warmup=options.warmup, steps=steps, schedule=options.schedule)
    )
    losses: tuple[list[float], list[float]] = ([], [])
    for step in range(steps):
        (batch,) = tuner._chosen(step)
        logits = adapted(torch.tensor(rows.ids[batch].astype(np.int64))).logits
        targets = torch.tensor(rows.targets[batch].astype(np.int64)).reshape(-1)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, TOKENS), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, options.clip)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        tuner.step()
        losses[0].append(float(loss.detach()))
        losses[1].append(tuner.mean_loss())
    save_adapter(ours, folder / "ours", settings)
    adapted.save_pretrained(folder / "trained")
    return {"peft": losses[0], "polyhal": losses[1], "logits": _exchange(kind, device, folder, rows.ids[:4])}


def _exchange(kind: str | None, device: str, folder: Path, ids: np.ndarray) -> float:
    """Load both trained adapters in both libraries, and return the largest difference of logits, relative to the largest."""
    worst = 0.0
    for name in ("ours", "trained"):
        theirs, ours = base(kind, device)
        load_adapter(ours, folder / name)
        adapted = peft.PeftModel.from_pretrained(theirs, folder / name).eval()
        with torch.no_grad(), ph.no_grad():
            expected = adapted(torch.tensor(ids.astype(np.int64))).logits.numpy()
            found = ours.eval()(ph.tensor(ids, device=device)).numpy()
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    return worst


def main() -> None:
    """Write the losses, and check their differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for title, kind in (("LoRA", None), ("QLoRA, q8_0", "q8_0"), ("QLoRA, q4_0", "q4_0")):
        with tempfile.TemporaryDirectory() as folder:
            found[title] = curves(kind, args.steps, args.device, Path(folder))
    versions = {name: metadata.version(name) for name in ("peft", "transformers", "torch")}
    lines = ",\n".join(f"{json.dumps(title)}: {json.dumps(row)}" for title, row in found.items())
    text = f'{{\n"device": {json.dumps(args.device)},\n"versions": {json.dumps(versions)},\n"curves": {{\n{lines}\n}}\n}}\n'
    RESULTS.write_text(text, encoding="utf-8")
    for title, row in found.items():
        worst = float(np.max(np.abs(np.divide(row["polyhal"], row["peft"]) - 1)))
        print(f"{title}: losses within {worst:.1e}, logits of exchanged adapters within {row['logits']:.1e}")
        if max(worst, row["logits"]) > TOLERANCE:
            raise SystemExit(f"{title} differs by more than {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()
