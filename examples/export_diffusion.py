"""Write a page that draws handwritten digits with a diffusion model, in a browser without Python.

A small U-Net is trained here to predict the noise in images of a given digit, and exported with two steps that
share its weights: one step of denoising for 20 images, and a training step with Adam.

python examples/export_diffusion.py diffusion.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from digits import digits

import polyhal as ph
from polyhal import export, nn, optim
from polyhal.models import DDPM, UNet

DRAWN, BATCH, LEVELS = 20, 64, 50


class DigitNoise(nn.Module):
    """Predicts the noise (N, 1, 8, 8) in images of given digits, which the U-Net reads as ten more channels."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = UNet(11, 1, (24, 48), (False, True), 1, 8)

    def forward(self, images, t, digit):
        chosen = digit[:, None] == ph.arange(10, dtype=ph.int32, device=images.device)
        planes = chosen.to(ph.float32)[:, :, None, None] + ph.zeros((1, 1, 8, 8), device=images.device)
        return self.unet(ph.concat([images, planes], 1), t)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", default=Path("diffusion.html"), help="a file .html, or a folder")
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    images, labels = digits()[0].arrays
    model = DigitNoise().to(device)
    diffusion = DDPM(LEVELS, beta_start=1e-3, beta_end=0.2, device=device)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=max(args.steps, 3))

    @ph.jit
    def train(image, digit):
        optimizer.zero_grad()
        loss = diffusion.loss(lambda x, t: model(x, t, digit), 2 * image - 1)
        loss.backward()
        optimizer.step()
        return loss

    @ph.jit
    def denoise(image, level, digit):
        return diffusion.denoise(lambda x, t: model(x, t, digit), image, level, ph.randn_like(image))

    generator = np.random.default_rng(0)
    for step in range(1, max(args.steps, 3) + 1):
        chosen = generator.integers(0, len(images), BATCH)
        loss = train(ph.tensor(images[chosen], device=device), ph.tensor(labels[chosen], device=device))
        schedule.step()
        if step % 250 == 0 or step == args.steps:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    with ph.no_grad():
        for level in range(3):
            noise = ph.randn(DRAWN, 1, 8, 8, device=device)
            levels = ph.full((DRAWN,), level, dtype=ph.int32, device=device)
            denoise(noise, levels, ph.tensor(np.arange(DRAWN, dtype=np.int32) % 10, device=device))
    print(f"{model.count_parameters()} parameters on {device}")
    optimizer.param_groups[0]["lr"] = 5e-4
    written = export.webgpu(
        {"denoise": denoise, "train": train},
        args.path,
        outputs={"denoise": ["image"], "train": ["loss"]},
        title="Digits from noise",
        page=(Path(__file__).parent / "pages" / "diffusion.js").read_text(encoding="utf-8"),
        data={
            "images": np.rint(images * 16).astype(int).reshape(-1, 64).tolist(),
            "labels": labels.tolist(),
            "drawn": DRAWN,
            "batch": BATCH,
            "levels": LEVELS,
        },
    )
    print(f"wrote {written}: open it in a browser with WebGPU")


if __name__ == "__main__":
    main()
