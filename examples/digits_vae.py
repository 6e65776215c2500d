"""Train a variational autoencoder (Kingma and Welling, arXiv:1312.6114) on handwritten digits, and draw new ones.

Its score is the evidence lower bound: nats per image, lower is better. It is compared with a model that only uses the
average brightness of each pixel, the best that is possible without information about the image.

python examples/digits_vae.py --picture vae.png
"""

import argparse

import numpy as np
from digits import batches, digits, draw_images

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader
from polyhal.nn import functional as F


class VAE(nn.Module):
    """Model from pixels (N, 64) in [0, 1] to logits of pixels, and the mean and log-variance of the code (N, latent)."""

    def __init__(self, latent: int = 8, width: int = 128) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        code = mean + (0.5 * log_variance).exp() * ph.randn_like(mean)
        return self.decoder(code), mean, log_variance


def bound(model: VAE, x: ph.Tensor) -> ph.Tensor:
    """Return the negative evidence lower bound in nats per image: reconstruction, and divergence from the prior."""
    logits, mean, log_variance = model(x)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (reconstruction + divergence) / len(x)


def main() -> None:
    """Train, report the bound on test images, and draw reconstructions and samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--picture", help="draw digits in this PNG file")
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)

    training, test = digits()
    loader = DataLoader(training, batch_size=128, shuffle=True, drop_last=True, device=device)
    unseen = ph.tensor(test.arrays[0].reshape(-1, 64), device=device)
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    brightness = np.clip(training.arrays[0].reshape(-1, 64).mean(0), 1e-3, 1 - 1e-3)
    x = test.arrays[0].reshape(-1, 64)
    average = -(x * np.log(brightness) + (1 - x) * np.log(1 - brightness)).sum(1).mean()
    floor = -(x * np.log(x.clip(1e-9)) + (1 - x) * np.log((1 - x).clip(1e-9))).sum(1).mean()
    print(f"{device}: knowing average pixels {average:.2f} nats per image; perfect reconstruction {floor:.2f}")

    @ph.jit
    def step(images):
        loss = bound(model, images.reshape(-1, 64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def test_bound() -> float:
        with ph.no_grad():
            return bound(model, unseen).item()

    print(f"before training: {test_bound():.2f} nats per test image")
    for done, (images, _) in enumerate(batches(loader, args.steps), 1):
        step(images)
        if done % 500 == 0:
            print(f"step {done:4d}  {test_bound():.2f} nats")
    print(f"after training: {test_bound():.2f} nats per test image")

    if args.picture:
        with ph.no_grad():
            reconstructions = model(unseen[:16])[0].sigmoid()
            samples = model.decoder(ph.randn(32, model.latent, device=device)).sigmoid()
        rows = {"test images": unseen[:16], "reconstructed": reconstructions, "sampled": samples[:16], "": samples[16:]}
        draw_images(args.picture, {name: images.numpy().reshape(-1, 8, 8) for name, images in rows.items()})


if __name__ == "__main__":
    main()
