"""The benchmarks compare like with like: all frameworks compute the same, and counts of bytes and operations are right."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import report, training_steps
from benchmarks.frameworks import numpy_, ours, pytorch
from benchmarks.workloads import Workload, workloads
from polyhal import Device

_LARGEST = 12
"""Axes are cut down to this in tests; the work stays the same."""


def _small(workload: Workload) -> Workload:
    shapes = tuple(None if s is None else tuple(min(n, _LARGEST) for n in s) for s in workload.shapes)
    params = {k: min(v, _LARGEST) if k in ("k", "groups") else v for k, v in workload.params.items()}
    indices = {i: min(n, _LARGEST) for i, n in workload.indices.items()}
    return replace(workload, shapes=shapes, params=params, indices=indices)


ALL = {w.name: w for size in ("cpu", "gpu") for w in workloads(size)}


@pytest.mark.parametrize("name", ALL)
def test_frameworks_compute_the_same(name):
    workload = _small(ALL[name])
    device = Device("numpy")
    others = {**numpy_.competitors(), **pytorch.competitors(gpu=False)}
    expected = ours.competitors([device])[device.name].prepare(workload).result()
    runners = [r for r in (c.prepare(workload) for c in others.values()) if not isinstance(r, str)]
    assert runners
    # Half precision rounds inputs, products and results in its own places: 3 significant digits with bfloat16.
    tolerance = 1e-5 if workload.dtype == "float32" else 2e-2
    for runner in runners:
        np.testing.assert_allclose(runner.result(), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("size", ["cpu", "gpu"])
def test_names_are_unique(size):
    names = [w.name for w in workloads(size)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "nbytes", "flops"),
    [
        ("add", 3 * 4 * 2**22, 0),
        ("sum", 4 * 2**22 + 4, 0),
        ("matmul 1000x777x1333", 0, 2 * 1000 * 777 * 1333),
        ("conv 3x3", 0, 2 * 4 * 64 * 56 * 56 * 64 * 9),
        ("attention 4x8x256x64", 0, 2 * 4 * 8 * 256 * 256 * 64),
        ("attention 4x8x256x64 and gradients", 0, 7 * 4 * 8 * 256 * 256 * 64),
    ],
)
def test_counts(name, nbytes, flops):
    assert {w.name: w for w in workloads("cpu")}[name].work() == (nbytes, flops)


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_training_steps_learn_alike(name):
    """Whether both models, with weights of their own, come down from guessing at the same pace."""
    workload = training_steps.WORKLOADS[name]
    if workload.config is not None:
        config = replace(workload.config, n_layer=1, n_embd=32, block_size=16)
        workload = replace(workload, config=config, inputs=(4, 16))
    own = training_steps.ours(workload, Device("numpy"), "highest", captured=False)
    peer = training_steps.torchs(workload, "cpu", "highest", graph=False)
    losses = np.array([[step().item() for step in (own, peer)] for _ in range(8)])
    # Guesses among n classes cost log n; the weights at the start, drawn alike, move that a little.
    guess = np.log(workload.config.vocab_size if workload.config else 10)
    np.testing.assert_allclose(losses[0], guess, rtol=0.1)
    assert (losses[-1] < losses[0]).all()
    np.testing.assert_allclose(losses[-1, 0], losses[-1, 1], rtol=0.15)


def test_the_page_is_what_the_results_say():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(report.results())
