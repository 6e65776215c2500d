"""Fine-tuning steps: losses of PEFT, packed rows, accumulation, and resuming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.adapters import LoraSettings, adapters, add_lora, load_adapter
from polyhal.finetune import Example, TokenRows, TuneOptions, Tuner, arrange
from polyhal.hal.errors import IncompatibleFileError
from polyhal.models import Decoder, DecoderConfig

PEFT = Path(__file__).parents[1] / "adapters" / "peft_run"
TOKENS = 32


def model() -> Decoder:
    made = Decoder(DecoderConfig.from_json(json.loads((PEFT / "config.json").read_text())), device="numpy")
    made.load_state_dict(ph.serialize.load(PEFT / "model.safetensors", device="numpy"))
    return made


def examples(count: int = 12) -> list[Example]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 9, count)
    return [Example([int(i) for i in rng.integers(1, TOKENS, n)], [False] * 2 + [True] * (n - 2)) for n in lengths]


def tuner(rows: TokenRows, **options: Any) -> Tuner:
    tuned = model()
    settings = LoraSettings(r=2, lora_alpha=8)
    ph.manual_seed(5)
    add_lora(tuned, settings)
    with ph.no_grad():
        for _, layer in adapters(tuned):
            layer.lora_B.weight.copy_(ph.randn(*layer.lora_B.weight.shape, device="numpy") * 0.1)
    return Tuner(tuned, settings, TuneOptions(**{"steps": 6, "lr": 1e-2, **options}), rows)


def test_losses_are_those_of_peft() -> None:
    recorded = json.loads((PEFT / "losses.json").read_text())["losses"]
    tuned = model()
    settings = load_adapter(tuned, PEFT / "adapter")
    batches = [np.random.default_rng(i).integers(0, TOKENS, (4, 13)) for i in range(4)]
    ids = np.concatenate(batches).astype(np.int32)
    rows = TokenRows(ids[:, :-1], ids[:, 1:], np.ones_like(ids[:, 1:]), packed=False, cut=0)
    options = TuneOptions(steps=20, batch_size=4, lr=1e-2, schedule="constant", weight_decay=0.01, clip=0)
    run = Tuner(tuned, settings, options, rows)
    run._order = lambda start, count: iter(i % 16 for i in range(start, start + count))  # type: ignore[method-assign]
    losses = []
    for _ in range(len(recorded)):
        run.step()
        losses.append(run.mean_loss())
    np.testing.assert_allclose(losses, recorded, atol=1e-5)


def test_packed_rows_have_the_loss_of_separate_ones() -> None:
    losses = []
    for packing in (False, True):
        rows = arrange(examples(), 16, packing=packing)
        run = tuner(rows, batch_size=len(rows))
        run.step()
        losses.append(run.mean_loss())
    assert len(arrange(examples(), 16)) < len(examples())
    # Rotary positions are relative: only the order of sums differs.
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_accumulated_batches_make_the_step_of_a_large_one() -> None:
    weights = []
    for sizes in ({"batch_size": 12}, {"batch_size": 3, "accumulate": 4}):
        run = tuner(arrange(examples(), 16, packing=False), **sizes)
        for _ in range(3):
            run.step()
        weights.append(np.concatenate([p.detach().numpy().ravel() for p in run.trained]))
    # Adam divides gradients by their size: where one is nearly 0 its rounding errors count.
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-4)


def test_a_resumed_run_computes_the_same_numbers(tmp_path: Path) -> None:
    rows = arrange(examples(), 16)
    whole, part = tuner(rows, batch_size=2), tuner(rows, batch_size=2)
    for _ in range(6):
        whole.step()
    for _ in range(3):
        part.step()
    part.save(tmp_path)
    resumed = tuner(rows, batch_size=2)
    resumed.resume(tmp_path)
    while resumed.done < 6:
        resumed.step()
    for a, b in zip(whole.trained, resumed.trained, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    with pytest.raises(IncompatibleFileError, match="options"):
        tuner(rows, batch_size=3).resume(tmp_path)
    assert sorted(p.name for p in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_every_row_is_used_once_per_pass_in_another_order() -> None:
    run = tuner(arrange(examples(), 16, packing=False), batch_size=5, accumulate=2)
    order = [int(i) for step in range(6) for batch in run._chosen(step) for i in batch]
    passes = [order[i : i + 12] for i in range(0, 60, 12)]
    assert all(sorted(p) == list(range(12)) for p in passes)
    assert len({tuple(p) for p in passes}) == 5
