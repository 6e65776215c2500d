"""Small models for training runs, written once for both frameworks: `nn` is `torch.nn` or `polyhal.nn`."""

from __future__ import annotations

from typing import Any


def lstm(nn: Any, vocabulary: int, width: int) -> Any:
    """A language model of two LSTM layers; its loss takes tokens (N, T) and the tokens after them."""

    class LSTMModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.lstm = nn.LSTM(width, width, 2, batch_first=True)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, tokens: Any) -> Any:
            out, _ = self.lstm(self.embedding(tokens))
            return self.head(out)

        def loss(self, tokens: Any, targets: Any) -> Any:
            return nn.functional.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    return LSTMModel()


def cnn(nn: Any, channels: int, classes: int) -> Any:
    """Two convolutions with batch norm and pooling; its loss takes images (N, 1, 8, 8) and classes (N,)."""

    class ConvolutionalModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, channels, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, 2 * channels, 3, padding=1)
            self.bn2 = nn.BatchNorm2d(2 * channels)
            self.pool = nn.MaxPool2d(2)
            self.head = nn.Linear(2 * channels * 4, classes)

        def forward(self, x: Any) -> Any:
            x = self.pool(nn.functional.relu(self.bn1(self.conv1(x))))
            x = self.pool(nn.functional.relu(self.bn2(self.conv2(x))))
            return self.head(x.flatten(1))

        def loss(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(self(x), y)

    return ConvolutionalModel()


def vae(nn: Any, pixels: int, width: int, latent: int) -> Any:
    """A variational autoencoder (Kingma and Welling, arXiv:1312.6114); its loss takes images in [0, 1] and normal noise."""

    class VAEModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(pixels, width), nn.Tanh())
            self.mean = nn.Linear(width, latent)
            self.log_variance = nn.Linear(width, latent)
            self.decoder = nn.Sequential(nn.Linear(latent, width), nn.Tanh(), nn.Linear(width, pixels))

        def loss(self, x: Any, noise: Any) -> Any:
            hidden = self.encoder(x)
            mean, log_variance = self.mean(hidden), self.log_variance(hidden)
            logits = self.decoder(mean + (0.5 * log_variance).exp() * noise)
            likelihood = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
            return (likelihood + divergence) / x.shape[0]

    return VAEModel()
