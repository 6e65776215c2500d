"""Draw handwritten digits with a denoising diffusion model (DDPM; Ho et al., arXiv:2006.11239).

The model learns to predict the noise in images that were mixed with it to all degrees, and is told the digit. Sampling
starts with noise and takes a little of what the model predicts away, step by step. To judge the samples we ask for given
digits, and see whether the most similar training image is one: by chance 10 % would be.

python examples/digits_ddpm.py --picture ddpm.png
"""

import argparse

import numpy as np
from digits import digits, draw_images

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader
from polyhal.nn import functional as F

LEVELS = 50  # of noise
beta = np.linspace(1e-3, 0.2, LEVELS)
kept = np.cumprod(1 - beta)  # of the image's variance


class UNet(nn.Module):
    """Noisy images (N, 1, 8, 8), noise levels (N,) and digits (N,) to the noise: at 8 x 8, at 4 x 4, and back."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.level = nn.Embedding(LEVELS, 2 * width)
        self.digit = nn.Embedding(10, 2 * width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle1 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.middle2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))
        self.norm1, self.norm2 = nn.GroupNorm(8, 2 * width), nn.GroupNorm(8, 2 * width)

    def forward(self, x, t, digit):
        condition = (self.level(t) + self.digit(digit))[:, :, None, None]
        fine = F.silu(self.enter(x))
        coarse = F.silu(self.norm1(self.down(fine)) + condition)
        coarse = coarse + self.middle2(F.silu(self.norm2(self.middle1(coarse)) + condition))
        return self.leave(ph.cat([fine, self.up(F.silu(coarse))], dim=1))


def sample(model: UNet, digit: ph.Tensor) -> ph.Tensor:
    """Draw an image (N, 1, 8, 8) in [-1, 1] of each of N digits."""

    @ph.jit
    def denoise(x, t, noise, scale: float, amount: float, deviation: float):
        return (x - amount * model(x, t, digit)) * scale + deviation * noise

    x = ph.randn(len(digit), 1, 8, 8, device=digit.device)
    with ph.no_grad():
        for level in reversed(range(LEVELS)):
            t = ph.full((len(digit),), level, dtype=ph.int32, device=digit.device)
            amount, deviation = beta[level] / np.sqrt(1 - kept[level]), np.sqrt(beta[level]) if level else 0.0
            x = denoise(x, t, ph.randn_like(x), float(1 / np.sqrt(1 - beta[level])), float(amount), float(deviation))
    return x


def main() -> None:
    """Train, report how many samples look like the digit that was asked for, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--picture", help="draw samples in this PNG file")
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    training, _ = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True, device=device)
    model = UNet().to(device)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=args.steps)
    signal = ph.tensor(np.sqrt(kept).astype(np.float32), device=device)
    spread = ph.tensor(np.sqrt(1 - kept).astype(np.float32), device=device)

    @ph.jit
    def step(images, digit):
        t = ph.randint(0, LEVELS, (len(images),), device=device)
        noise = ph.randn_like(images)
        noisy = signal[t][:, None, None, None] * (2 * images - 1) + spread[t][:, None, None, None] * noise
        loss = F.mse_loss(model(noisy, t, digit), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    wanted = np.arange(160) % 10
    known, label = training.arrays[0].reshape(-1, 64), training.arrays[1]

    def judge() -> tuple[float, np.ndarray]:
        images = sample(model, ph.tensor(wanted, device=device)).numpy().reshape(-1, 64) / 2 + 0.5
        nearest = ((images[:, None] - known) ** 2).sum(-1).argmin(1)
        return float((label[nearest] == wanted).mean()), images.reshape(-1, 8, 8).clip(0, 1)

    print(f"{device}: {judge()[0]:.1%} of samples look like the digit asked for before training")
    done = 0
    while done < args.steps:
        for images, digit in loader:
            loss = step(images, digit)
            done += 1
            if done % 500 == 0:
                print(f"step {done:4d}  loss {loss.item():.4f}")
            if done == args.steps:
                break
    share, images = judge()
    print(f"{share:.1%} of samples look like the digit asked for after training")
    if args.picture:
        draw_images(args.picture, {str(i): images[wanted == i] for i in range(10)})


if __name__ == "__main__":
    main()
