"""transformers' Trainer, which takes its device from Accelerate: default settings, mixed precision, compiled, and resumed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from tests.torch.libraries.cases import whole_case
from tests.torch.libraries.refusals import assert_refused

_TOKENS = torch.randint(64, (16, 12), generator=torch.Generator().manual_seed(1))
_DATA = [{"input_ids": row, "labels": row} for row in _TOKENS]


class _Losses(hf.TrainerCallback):
    """Collects the losses that the Trainer logs."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **options: Any) -> None:
        self.values += [logs[name] for name in ("loss", "eval_loss") if name in logs]


def _settings(device: str, folder: str, **options: Any) -> hf.TrainingArguments:
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    return hf.TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=device == "cpu",
        **options,
    )


def _fit(
    device: str,
    mode: str,
    folder: str,
    resume: str | None = None,
    kind: type[hf.Trainer] = hf.Trainer,
    dropout: float = 0.0,
    **options: Any,
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    sizes: Any = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=0.0, **sizes))
    losses = _Losses()
    arguments = _settings(device, folder, torch_compile=mode == "compiled", **options)
    trainer = kind(model, arguments, train_dataset=_DATA, eval_dataset=_DATA, callbacks=[losses])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    place = {p.device.type for p in model.parameters()}
    assert place == {torch.device(device).type}, f"the Trainer put the model on {place}"
    return [torch.tensor(losses.values)]


def _trained(device: str, mode: str, **options: Any) -> list[torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        return _fit(device, mode, folder, save_strategy="no", **options)


def _many_settings(device: str, mode: str) -> list[torch.Tensor]:
    return _trained(
        device,
        mode,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        eval_strategy="epoch",
        optim="adamw_torch_fused",
        dataloader_num_workers=1,
    )


def _resumed(device: str, mode: str) -> list[torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        whole = _fit(device, mode, folder, save_strategy="steps", save_steps=4)
        (rest,) = _fit(device, mode, folder, str(Path(folder) / "checkpoint-4"), save_strategy="no")
        assert torch.equal(rest, whole[0][4:]), "a resumed run has other losses"
    return [*whole, rest]


def _resumed_with_dropout(device: str, mode: str) -> list[torch.Tensor]:
    """Masks of the device are not those of the CPU: the resumed run has to have the losses of the whole one."""
    with tempfile.TemporaryDirectory() as folder:
        (whole,) = _fit(device, mode, folder, dropout=0.2, save_strategy="steps", save_steps=4)
        torch.rand(7, device=device)
        (rest,) = _fit(device, mode, folder, str(Path(folder) / "checkpoint-4"), dropout=0.2, save_strategy="no")
    assert torch.equal(rest, whole[4:]), "a resumed run has other losses"
    return [torch.tensor(len(whole))]


def _bfloat16(device: str, mode: str) -> list[torch.Tensor]:
    if device != "cpu":
        assert_refused(lambda: _trained(device, mode, bf16=True), "doesn't support bf16/gpu")
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
    try:
        return _trained(device, mode)
    finally:
        del os.environ["ACCELERATE_MIXED_PRECISION"]


class _HalfTrainer(hf.Trainer):
    """Trainer in float16 on devices that Accelerate does not list, as docs/torch.md has it."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.scaler = torch.amp.GradScaler(self.args.device.type)
        self.accelerator.native_amp = True
        self.accelerator.state._mixed_precision = "fp16"


def _float16(device: str, mode: str) -> list[torch.Tensor]:
    """Compare with the CPU in float32, because its scaler is another: the first loss is that of the same parameters."""
    if device == "cpu":
        return [_trained(device, mode)[0][:1]]
    assert_refused(lambda: _trained(device, mode, fp16=True), "fp16 mixed precision requires a device in")
    (losses,) = _trained(device, mode, kind=_HalfTrainer)
    assert losses[-1] < losses[0], "training in float16 does not lower the loss"
    return [losses[:1]]


def _named_compiler(device: str, mode: str) -> list[torch.Tensor]:
    assert_refused(lambda: _trained(device, mode, torch_compile_backend="polyhal"), "not a valid DynamoBackend")
    return _trained(device, mode)


whole_case("transformers", "Trainer", _trained, modes=("eager", "compiled"))
whole_case("transformers", "Trainer, accumulation, checkpointing, evaluation, workers", _many_settings)
whole_case("transformers", "Trainer, resumed", _resumed)
whole_case("transformers", "Trainer, resumed, with dropout", _resumed_with_dropout)
whole_case("transformers", "Trainer, bfloat16 by ACCELERATE_MIXED_PRECISION", _bfloat16)
whole_case("transformers", "Trainer, float16 by a subclass", _float16)
whole_case("transformers", "Trainer, torch_compile instead of a named compiler", _named_compiler)
