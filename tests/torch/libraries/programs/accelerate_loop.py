"""Accelerate: loops of one's own, with accumulation, clipping, checkpoints and mixed precision."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn import functional as F

from tests.torch.libraries.cases import whole_case
from tests.torch.libraries.refusals import assert_refused


def _accelerator(device: str, **options: Any) -> Accelerator:
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    AcceleratorState._reset_state(True)
    return Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2, **options)


def _train(device: str, precision: str) -> list[torch.Tensor]:
    accelerator = _accelerator(device, mixed_precision=precision)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    data = torch.utils.data.TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=5)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                with accelerator.autocast():
                    loss = F.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(accelerator.gather_for_metrics(loss.detach()).cpu())
    _store_and_load(accelerator, model)
    return [torch.stack(losses)]


def _store_and_load(accelerator: Accelerator, model: torch.nn.Module) -> None:
    before = [p.detach().clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        masks = torch.rand(7, device=accelerator.device)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        accelerator.load_state(folder)
        assert torch.equal(torch.rand(7, device=accelerator.device), masks), "random numbers do not go on"
        accelerator.save_model(model, folder)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def _float32(device: str, mode: str) -> list[torch.Tensor]:
    return _train(device, "no")


def _bfloat16(device: str, mode: str) -> list[torch.Tensor]:
    return _train(device, "bf16")


def _float16_is_refused(device: str, mode: str) -> list[torch.Tensor]:
    if device != "cpu":
        assert_refused(
            lambda: _accelerator(device, mixed_precision="fp16"), "fp16 mixed precision requires a device in"
        )
    return _train(device, "no")


whole_case("accelerate", "prepare, accumulate, save_state, load_state", _float32)
whole_case("accelerate", "bf16", _bfloat16)
whole_case("accelerate", "fp16 is refused", _float16_is_refused)
