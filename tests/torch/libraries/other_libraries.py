"""diffusers, peft, PyTorch Geometric, Lightning and Ultralytics."""

from __future__ import annotations

import warnings
from typing import Any

import diffusers
import lightning
import peft
import torch
import torch_geometric
import transformers as hf
from lightning.pytorch.strategies import SingleDeviceStrategy
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import IterableSimpleNamespace

from tests.torch.libraries.cases import Given, Made, case, floats, on_cpu, trained_case


def _unet() -> Made:
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8,
    )  # fmt: skip
    return model, {
        "sample": torch.randn(2, 3, 8, 8),
        "timestep": torch.tensor([3, 30]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }


def _vae() -> Made:
    model = diffusers.AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=2, norm_num_groups=8, block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    return model, {"sample": torch.randn(2, 3, 16, 16)}


trained_case("diffusers", "UNet2DConditionModel", _unet)
trained_case("diffusers", "AutoencoderKL", _vae)


@case("diffusers", "denoising by DDIM")
def _denoise(device: str) -> Given:
    torch.manual_seed(0)
    model, inputs = _unet()
    model.to(device)
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=50)
    scheduler.set_timesteps(4, device=device)
    x, text = inputs["sample"].to(device), inputs["encoder_hidden_states"].to(device)
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(model(x, t, encoder_hidden_states=text).sample, t, x).prev_sample
    return Given(on_cpu([x]))


def _lora() -> Made:
    base = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["c_attn"], init_lora_weights=False))
    tokens = torch.randint(64, (2, 8))
    return model.eval(), {"input_ids": tokens, "labels": tokens}


trained_case("peft", "LoRA on GPT-2", _lora)


class _GraphModel(torch.nn.Module):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x, edges).relu(), edges)
        return torch_geometric.nn.global_mean_pool(x, batch)


def _graph(first: Any, second: Any) -> Made:
    edges = torch.randint(12, (2, 40))
    batch = torch.tensor([0] * 7 + [1] * 5)
    return _GraphModel(first, second), {"x": torch.randn(12, 6), "edges": edges, "batch": batch}


_layers = torch_geometric.nn
trained_case("torch-geometric", "GCN", lambda: _graph(_layers.GCNConv(6, 16), _layers.GCNConv(16, 4)))
trained_case("torch-geometric", "GAT", lambda: _graph(_layers.GATConv(6, 8, heads=2), _layers.GATConv(16, 4)))
trained_case("torch-geometric", "GraphSAGE", lambda: _graph(_layers.SAGEConv(6, 16), _layers.SAGEConv(16, 4)))


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
    """What Lightning asks of a device that it does not know: its own documented way to bring one."""

    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""

    def teardown(self) -> None:
        """There is nothing to tear down."""

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """The number that was asked for."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """The one device."""
        return [torch.device("polyhal", 0)]

    @staticmethod
    def auto_device_count() -> int:
        """1"""
        return 1

    @staticmethod
    def is_available() -> bool:
        """True"""
        return True

    @staticmethod
    def name() -> str:
        """As in `Trainer(accelerator=...)`."""
        return "polyhal"

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """What the pool knows."""
        return dict(torch.polyhal.memory_stats(device))  # type: ignore[attr-defined]


@case("lightning", "Trainer")
def _trainer(device: str) -> Given:
    lightning.seed_everything(0, verbose=False)
    data = torch.utils.data.TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    model = _Regression()
    strategy = SingleDeviceStrategy(torch.device(device), PolyhalAccelerator()) if device != "cpu" else "auto"
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu" if device == "cpu" else "auto", strategy=strategy, devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=8))
    parameters = [p.detach().cpu() for p in model.parameters()]
    return Given([torch.tensor(model.losses), *parameters])


def _yolo() -> Made:
    """The model of the library with its own loss. Its command line knows names of devices of its own, and accepts no others."""
    model = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
    model.args = IterableSimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    batch = {
        "img": torch.rand(2, 3, 64, 64),
        "cls": torch.tensor([[0.0], [2.0]]),
        "bboxes": torch.tensor([[0.5, 0.5, 0.6, 0.4], [0.3, 0.6, 0.3, 0.5]]),
        "batch_idx": torch.tensor([0.0, 1.0]),
    }
    return model.train(), batch


trained_case("ultralytics", "YOLOv8, its loss", _yolo, lambda model, batch: model(batch))


@case("ultralytics", "YOLOv8, predictions")
def _predictions(device: str) -> Given:
    torch.manual_seed(0)
    model = DetectionModel("yolov8n.yaml", nc=3, verbose=False).to(device).eval()
    images = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1)).to(device)
    with torch.inference_mode():
        return Given(on_cpu(list(floats(model(images)))[:1]))
