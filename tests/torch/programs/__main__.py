"""Train one of the programs: `python -m tests.torch.programs convolutional --device polyhal --steps 100`."""

from __future__ import annotations

import argparse
import importlib

from tests.torch.programs.data import NAMES


def main() -> None:
    """Print the loss now and then."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch.programs", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    program = importlib.import_module(f"tests.torch.programs.{arguments.name}")
    found = program.losses(arguments.device, arguments.steps)
    for step in range(0, len(found), max(1, len(found) // 10)):
        print(f"step {step:5}  loss {found[step]:.4f}")
    print(f"step {len(found) - 1:5}  loss {found[-1]:.4f}")


if __name__ == "__main__":
    main()
