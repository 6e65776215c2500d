"""Train a small convolutional network on handwritten digits.

python examples/digits_cnn.py --device numpy
"""

from __future__ import annotations

import argparse
import sys
import time

from digits import accuracy, digits, train

import polyhal as ph
from polyhal.data import DataLoader
from polyhal.models import CNN

TARGET = 0.97
"""The program fails if the test accuracy is lower."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="for example opencl:1 or numpy; default: the best device")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = ph.Device(args.device)
    ph.manual_seed(args.seed)
    training, test = digits()
    loader = DataLoader(training, batch_size=64, shuffle=True, seed=args.seed, device=device)
    model = CNN(device=device)
    optimizer = ph.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    scheduler = ph.optim.WarmupCosine(optimizer, warmup_steps=len(loader) // 2, total_steps=args.steps)
    print(f"{model.count_parameters()} parameters on {device} ({device.info.name})")

    start = time.perf_counter()
    train(model, optimizer, scheduler, loader, args.steps)
    result = accuracy(model.eval(), test, device)
    print(f"test accuracy {result:.2%} after {time.perf_counter() - start:.1f} s")
    return 0 if result >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
