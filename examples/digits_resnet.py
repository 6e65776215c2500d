"""Train a small residual network on shifted and noisy handwritten digits, and show its errors.

`polyhal.models` has ResNets with the names of torchvision's weights; the one here has two stages of one block.

python examples/digits_resnet.py
"""

import argparse
import time

import numpy as np
from digits import batches, digits

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader
from polyhal.models.resnet import BasicBlock, ResNet


def augment(images: ph.Tensor) -> ph.Tensor:
    """Shift the batch by up to one pixel, and add noise."""
    up, left = np.random.randint(0, 3, 2)
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    return padded[:, :, up : up + 8, left : left + 8] + 0.1 * ph.randn_like(images)


def main() -> None:
    """Train, and report accuracy and the most frequent confusions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    device = ph.Device(args.device)
    ph.manual_seed(0)
    np.random.seed(0)

    training, test = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True, device=device)
    images, labels = (ph.tensor(a, device=device) for a in test.arrays)
    model = ResNet(BasicBlock, (1, 1), num_classes=10, in_channels=1, width=16, small_images=True).to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=args.steps)

    @ph.jit
    def step(images, labels):
        loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    def predict() -> np.ndarray:
        model.eval()
        with ph.no_grad():
            guess = model(images).argmax(dim=1).numpy()
        model.train()
        return guess

    truth = labels.numpy()
    print(f"{model.count_parameters()} parameters on {device}; before training {(predict() == truth).mean():.1%} right")
    start = time.perf_counter()
    for done, (x, y) in enumerate(batches(loader, args.steps), 1):
        loss = step(augment(x), y)
        if done % 100 == 0:
            print(f"step {done:4d}  loss {loss.item():.4f}  {(predict() == truth).mean():.1%} right")
    guess = predict()
    print(f"after training {(guess == truth).mean():.1%} right, in {time.perf_counter() - start:.1f} s")
    for digit, read in zip(truth[guess != truth][:5], guess[guess != truth], strict=False):
        print(f"  a {digit} was read as a {read}")


if __name__ == "__main__":
    main()
