"""Inference of BERT-base and ResNet-50, captured, eager, and in PyTorch: time, memory, and the first result."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import model_programs
from benchmarks.inference_workloads import PRECISIONS, WORKLOADS


def main(arguments: Sequence[str]) -> int:
    return model_programs.run("inference", __doc__, WORKLOADS, tuple(WORKLOADS), PRECISIONS, arguments)
