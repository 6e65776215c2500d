"""PyTorch's own steps on CUDA in a separate process, in which Polyhal's device is not registered.

PyTorch treats the device of a package as its accelerator as soon as it is named, and then its backward pass on CUDA
fails. `python -m benchmarks.torch_peer SIZE MODEL WHO PRECISION` takes a step for each line that it reads, and prints
the loss.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]


class PeerProcess:
    """A step of another process: calling it takes the step, waits for it, and returns the loss."""

    def __init__(self, size: str, model: str, who: str, precision: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.torch_peer", size, model, who, precision],
            cwd=_ROOT,
            env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __call__(self) -> float:
        """Raises RuntimeError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of the peer ended with code {self._process.wait()}")
        return float(line)

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()


def main(size: str, model: str, who: str, precision: str) -> None:
    from benchmarks.torch_step_workloads import WORKLOADS_BY_SIZE, torch_step

    workload = next(w for w in WORKLOADS_BY_SIZE[size] if w.name == model)
    step = torch_step(workload, "cuda", precision, who)
    for _ in sys.stdin:
        print(float(step()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
