"""Lightning: its Trainer, with an accelerator for the device."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy

from tests.torch.libraries.cases import whole_case


class _Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class PolyhalAccelerator(lightning.pytorch.accelerators.Accelerator):
    """Lightning's documented interface for a custom accelerator."""

    def setup_device(self, device: torch.device) -> None:
        """No-op: the device does not need a setup."""

    def teardown(self) -> None:
        """No-op: the device does not need a teardown."""

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """Return the requested number of devices."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return the only device."""
        return [torch.device("polyhal", 0)]

    @staticmethod
    def auto_device_count() -> int:
        """Return 1."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Return True."""
        return True

    @staticmethod
    def name() -> str:
        """Return the name for `Trainer(accelerator=...)`."""
        return "polyhal"

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Return the statistics of the pool."""
        return dict(torch.polyhal.memory_stats(device))  # type: ignore[attr-defined]


def _train(device: str, mode: str, precision: Any = None) -> list[torch.Tensor]:
    lightning.seed_everything(0, verbose=False)
    data = torch.utils.data.TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    model = _Regression()
    if mode == "compiled":
        model.net.compile()
    strategy = SingleDeviceStrategy(torch.device(device), PolyhalAccelerator()) if device != "cpu" else "auto"
    plugins = [LightningEnvironment(), *([MixedPrecision(precision, device)] if precision else [])]
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu" if device == "cpu" else "auto",
        strategy=strategy,
        plugins=plugins,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
    return [torch.tensor(model.losses), *model.parameters()]


def _bfloat16(device: str, mode: str) -> list[torch.Tensor]:
    """Train with a plugin: by `precision="bf16-mixed"` Lightning casts on its own devices only, and says nothing."""
    return _train(device, mode, "bf16-mixed")[:1]


whole_case("lightning", "Trainer", _train, modes=("eager", "compiled"))
whole_case("lightning", "Trainer, bfloat16", _bfloat16)
