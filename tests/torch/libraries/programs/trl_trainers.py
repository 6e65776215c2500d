"""TRL: supervised fine-tuning, also with an adapter of low rank, and direct preference optimization."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import datasets
import peft
import tokenizers
import torch
import transformers as hf
import trl

from tests.torch.libraries.cases import whole_case
from tests.torch.libraries.refusals import assert_refused


def _tokenizer() -> hf.PreTrainedTokenizerFast:
    words = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(40))]
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def _model() -> hf.PreTrainedModel:
    torch.manual_seed(0)
    sizes: Any = {"vocab_size": 43, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    tokens: Any = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    return hf.GPT2LMHeadModel(hf.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **sizes, **tokens))


def _text(first: int, words: int) -> str:
    return " ".join(f"w{(first * 7 + i * 3) % 40}" for i in range(words))


class _Losses(hf.TrainerCallback):
    """Collects the losses that a trainer logs."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **options: Any) -> None:
        self.values += [logs["loss"]] if "loss" in logs else []


def _settings(kind: Any, device: str, folder: str, **options: Any) -> Any:
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    return kind(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        max_length=32,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=device == "cpu",
        **{"bf16": False, **options},
    )


def _fit(trainer: Any, losses: _Losses) -> list[torch.Tensor]:
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return [torch.tensor(losses.values)]


def _tune(device: str, adapter: Any = None) -> list[torch.Tensor]:
    losses = _Losses()
    data = datasets.Dataset.from_list([{"text": _text(i, 6 + i % 3)} for i in range(12)])
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.SFTTrainer(
            _model(),
            args=_settings(trl.SFTConfig, device, folder),
            train_dataset=data,
            processing_class=_tokenizer(),
            callbacks=[losses],
            peft_config=adapter,
        )
        found = _fit(trainer, losses)
    if adapter is None:
        return found
    merged = trainer.model.merge_and_unload()
    return [*found, merged(input_ids=torch.arange(8, device=merged.device)[None]).logits.detach()]


def _fine_tuning(device: str, mode: str) -> list[torch.Tensor]:
    if device != "cpu":
        with tempfile.TemporaryDirectory() as folder:  # the default of TRL is bfloat16
            assert_refused(lambda: _settings(trl.SFTConfig, device, folder, bf16=None), "doesn't support bf16/gpu")
    return _tune(device)


def _adapter(device: str, mode: str) -> list[torch.Tensor]:
    return _tune(device, peft.LoraConfig(r=4, target_modules=["c_attn"]))


def _preferences(device: str, mode: str) -> list[torch.Tensor]:
    losses = _Losses()
    rows = [
        {"prompt": _text(i, 3), "chosen": f" {_text(i + 1, 4)}", "rejected": f" {_text(i + 2, 5)}"} for i in range(12)
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.DPOTrainer(
            _model(),
            ref_model=_model(),
            args=_settings(trl.DPOConfig, device, folder),
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=_tokenizer(),
            callbacks=[losses],
        )
        return _fit(trainer, losses)


whole_case("trl", "SFTTrainer", _fine_tuning)
whole_case("trl", "SFTTrainer with LoRA, merged", _adapter)
whole_case("trl", "DPOTrainer", _preferences)
