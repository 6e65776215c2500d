"""PyTorch's own steps on CUDA in a separate process, in which Polyhal's device is not registered.

PyTorch treats the device of a package as its accelerator as soon as it is named, and then its backward pass on CUDA
fails. `python -m benchmarks.torch_peer SIZE MODEL WHO PRECISION` takes a step for each line that it reads, and prints
the loss.
"""

from __future__ import annotations

import sys

from benchmarks.line_process import LineProcess


class TorchPeer(LineProcess):
    """A step of another process: calling it takes the step, waits for it, and returns the loss."""

    def __init__(self, size: str, model: str, who: str, precision: str) -> None:
        command = [sys.executable, "-m", "benchmarks.torch_peer", size, model, who, precision]
        super().__init__("PyTorch", command, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})

    def __call__(self) -> float:
        """Raises RuntimeError if the process has ended."""
        return float(self.answer(""))


def main(size: str, model: str, who: str, precision: str) -> None:
    from benchmarks.torch_step_workloads import WORKLOADS_BY_SIZE, torch_step

    workload = next(w for w in WORKLOADS_BY_SIZE[size] if w.name == model)
    step = torch_step(workload, "cuda", precision, who)
    for _ in sys.stdin:
        print(float(step()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
