"""Random numbers: reproducible, resumable and distributed as they should be."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import polyhal as ph
from polyhal import random
from polyhal.random import Generator


def test_known_answer(device: ph.Device) -> None:
    """The first block of Philox4x32-10 with key and counter 0, from the authors' test vectors."""
    found = random.bits((4,), generator=Generator(0), device=device).numpy()
    assert [hex(w) for w in found] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def test_same_bits_as_on_the_host(device: ph.Device) -> None:
    on_device = random.bits((5, 7), generator=Generator(9), device=device).numpy()
    np.testing.assert_array_equal(on_device.reshape(-1), Generator(9).words(35))


def test_seed_and_state(device: ph.Device) -> None:
    generator = Generator(7)
    first = ph.rand(10, generator=generator, device=device).tolist()
    state = generator.get_state()
    assert state == {"seed": 7, "offset": 3}
    second = ph.rand(10, generator=generator, device=device).tolist()
    assert first != second
    generator.set_state(state)
    assert ph.rand(10, generator=generator, device=device).tolist() == second
    ph.manual_seed(7)
    assert ph.rand((10,), device=device).tolist() == first
    assert Generator().seed != Generator().seed
    with pytest.raises(ValueError, match="seed -1"):
        Generator(-1)


def test_threads_never_share_numbers() -> None:
    generator, taken = Generator(0), []
    threads = [
        threading.Thread(target=lambda: taken.extend(generator.take(4)[1] for _ in range(500))) for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(taken) == list(range(2000))


@pytest.mark.slow
def test_distributions(device: ph.Device) -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
    ph.manual_seed(1)
    n = 20000
    u = ph.rand(n, device=device).numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert stats.kstest(ph.randn(n, device=device).numpy(), "norm").pvalue > 1e-4
    assert stats.kstest(random.uniform(-2, 3, n, device=device).numpy(), "uniform", (-2, 5)).pvalue > 1e-4
    assert stats.kstest(random.normal(1, 2, n, device=device).numpy(), "norm", (1, 2)).pvalue > 1e-4
    assert abs(ph.bernoulli(0.3, (n,), device=device).numpy().mean() - 0.3) < 0.02
    chances = ph.tensor([0.0, 0.25, 1.0], device=device).broadcast_to((n, 3))
    np.testing.assert_allclose(ph.bernoulli(chances).numpy().mean(0), [0, 0.25, 1], atol=0.02)
    assert ph.randn((3, 2), dtype=ph.float16, device=device).dtype is ph.float16
    assert ph.rand(3, requires_grad=True, device=device).requires_grad


@pytest.mark.slow
def test_randint(device: ph.Device) -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
    ph.manual_seed(2)
    drawn = ph.randint(-3, 4, (7000,), device=device)
    assert drawn.dtype is ph.int64
    counts = np.bincount(drawn.numpy() + 3, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 1e-4
    assert ph.randint(0, 9, (2,), dtype=ph.int32, device=device).dtype is ph.int32
    wide = ph.randint(0, 2**40, (1000,), device=device).numpy()
    assert wide.max() > 2**39
    assert wide.min() >= 0
    assert wide.max() < 2**40
    with pytest.raises(ValueError, match="no integers from 3"):
        ph.randint(3, 3, (1,), device=device)


@pytest.mark.slow
def test_permutations(device: ph.Device) -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
    ph.manual_seed(3)
    order = ph.randperm(100, device=device).numpy()
    assert sorted(order) == list(range(100))
    assert order.tolist() != list(range(100))
    assert ph.randperm(0, device=device).shape == (0,)
    firsts = np.bincount([Generator(s).permutation(5)[0] for s in range(2000)], minlength=5)
    assert stats.chisquare(firsts).pvalue > 1e-4


def test_normal_numbers_have_the_same_bits_on_every_device(device: ph.Device) -> None:
    for dtype in (ph.float32, ph.float16, ph.float64):
        if dtype in device.capabilities.storage:
            drawn = [ph.randn(1003, dtype=dtype, generator=Generator(4), device=d).numpy() for d in (device, "numpy")]
            np.testing.assert_array_equal(*[d.view(f"u{dtype.itemsize}") for d in drawn])
    first = ph.randn(4, generator=Generator(0), device=device).tolist()
    assert [v.hex() for v in first] == NORMAL


def test_permutations_and_dropout_masks_are_the_same_on_every_device(device: ph.Device) -> None:
    orders = [ph.randperm(50, generator=Generator(4), device=d).tolist() for d in (device, "numpy")]
    assert orders[0] == orders[1]
    masks = []
    for d in (device, "numpy"):
        ph.manual_seed(8)
        masks.append(ph.nn.functional.dropout(ph.ones(501, device=d), 0.3).tolist())
    assert masks[0] == masks[1]


NORMAL = ["0x1.05f4a00000000p-2", "-0x1.3769e00000000p-2", "-0x1.70b9000000000p-1", "-0x1.403c480000000p+0"]
"""The first four numbers of seed 0."""


@pytest.mark.slow
def test_complex_numbers_have_two_random_parts(device: ph.Device) -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is a development dependency")
    z = ph.randn(20000, dtype="complex64", generator=Generator(5), device=device)
    assert z.dtype is ph.complex64
    assert np.mean(np.abs(z.numpy()) ** 2) == pytest.approx(1, abs=0.05)
    for part in (z.real, z.imag):
        assert stats.kstest(part.numpy() * np.sqrt(2), "norm").pvalue > 1e-4
    u = ph.rand((2, 3), dtype="complex64", generator=Generator(5), device=device)
    assert u.shape == (2, 3)
    assert 0 <= u.real.numpy().min() <= u.imag.numpy().max() < 1
    assert ph.rand_like(u).dtype is ph.complex64
    assert ph.randn(3, dtype="complex64", generator=Generator(1), device=device).tolist() == pytest.approx(
        ph.randn(3, dtype="complex64", generator=Generator(1), device="numpy").tolist()
    )
