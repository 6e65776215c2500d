"""Whole training steps, captured, eager, and in PyTorch: time, peak memory, and time to the first step.

Names of precisions apply to float32 matrix products, except bfloat16, which is autocast.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import model_programs
from benchmarks.training_workloads import PRECISIONS, WORKLOADS


def main(arguments: Sequence[str]) -> int:
    return model_programs.run("training_step", __doc__, WORKLOADS, ("mlp", "cnn", "gpt"), PRECISIONS, arguments)
