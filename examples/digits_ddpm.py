"""Draw handwritten digits with a denoising diffusion model (DDPM; Ho et al., arXiv:2006.11239).

The model learns to predict the noise in images with any amount of noise, conditioned on the digit. Sampling starts with noise
and subtracts a fraction of the predicted noise in each step. To evaluate, samples of given digits are compared with their most
similar training images; 10 % would match by chance.

python examples/digits_ddpm.py --picture ddpm.png
"""

import argparse

import numpy as np
from digits import batches, digits, draw_images

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader
from polyhal.nn import functional as F

LEVELS = 50  # noise levels
beta = np.linspace(1e-3, 0.2, LEVELS)
kept = np.cumprod(1 - beta)  # fraction of the image's variance


class Denoiser(nn.Module):
    """Model from noisy pixels (N, 64), noise levels (N,) and digits (N,) to the noise; for larger images see `models.UNet`."""

    def __init__(self, width: int = 256, depth: int = 3) -> None:
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.digit = nn.Embedding(10, width)
        self.enter = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64))

    def forward(self, x, t, digit):
        condition = self.level(t) + self.digit(digit)
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x + condition)
        return self.leave(x)


def sample(model: Denoiser, digit: ph.Tensor) -> ph.Tensor:
    """Draw pixels (N, 64) in [-1, 1] of each of N digits."""

    @ph.jit
    def denoise(x, t, noise, scale: float, amount: float, deviation: float):
        return (x - amount * model(x, t, digit)) * scale + deviation * noise

    x = ph.randn(len(digit), 64, device=digit.device)
    with ph.no_grad():
        for level in reversed(range(LEVELS)):
            t = ph.full((len(digit),), level, dtype=ph.int32, device=digit.device)
            amount, deviation = beta[level] / np.sqrt(1 - kept[level]), np.sqrt(beta[level]) if level else 0.0
            x = denoise(x, t, ph.randn_like(x), float(1 / np.sqrt(1 - beta[level])), float(amount), float(deviation))
    return x


def main() -> None:
    """Train, report how many samples look like the requested digit, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--picture", help="draw samples in this PNG file")
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    training, _ = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True, device=device)
    model = Denoiser().to(device)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=args.steps)
    signal = ph.tensor(np.sqrt(kept).astype(np.float32), device=device)
    spread = ph.tensor(np.sqrt(1 - kept).astype(np.float32), device=device)

    @ph.jit
    def step(images, digit):
        t = ph.randint(0, LEVELS, (len(images),), device=device)
        noise = ph.randn(len(images), 64, device=device)
        noisy = signal[t][:, None] * (2 * images.flatten(1) - 1) + spread[t][:, None] * noise
        loss = F.mse_loss(model(noisy, t, digit), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    wanted = np.arange(100) % 10
    known, label = training.arrays[0].reshape(-1, 64), training.arrays[1]

    def judge() -> tuple[float, np.ndarray]:
        images = sample(model, ph.tensor(wanted, device=device)).numpy() / 2 + 0.5
        nearest = ((images[:, None] - known) ** 2).sum(-1).argmin(1)
        return float((label[nearest] == wanted).mean()), images.reshape(-1, 8, 8).clip(0, 1)

    print(f"{device}: {judge()[0]:.1%} of samples look like the requested digit before training")
    for done, (images, digit) in enumerate(batches(loader, args.steps), 1):
        loss = step(images, digit)
        if done % 500 == 0:
            print(f"step {done:4d}  loss {loss.item():.4f}")
    share, images = judge()
    print(f"{share:.1%} of samples look like the requested digit after training")
    if args.picture:
        draw_images(args.picture, {str(i): images[wanted == i] for i in range(10)})


if __name__ == "__main__":
    main()
