"""einops on Polyhal's tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import polyhal as ph

einops = pytest.importorskip("einops")


@pytest.mark.parametrize(
    "pattern", ["b c h w -> b (h w) c", "b (c k) h w -> (b k) w c h", "b c h w -> b c h w ()"], ids=str
)
def test_rearranges(pattern: str, device: ph.Device) -> None:
    x = np.arange(2 * 4 * 3 * 5, dtype=np.float32).reshape(2, 4, 3, 5)
    lengths = {"k": 2} if "k" in pattern else {}
    expected = einops.rearrange(x, pattern, **lengths)
    np.testing.assert_array_equal(einops.rearrange(ph.tensor(x, device=device), pattern, **lengths).numpy(), expected)


@pytest.mark.parametrize("operation", ["max", "min", "sum", "mean", "prod"])
def test_reduces_and_differentiates(operation: str, device: ph.Device) -> None:
    x = ph.tensor(np.arange(1, 13, dtype=np.float32).reshape(3, 4), device=device, requires_grad=True)
    out = einops.reduce(x, "(a b) c -> b", operation, b=3)
    np.testing.assert_allclose(out.numpy(), getattr(x.numpy(), operation)(axis=1), rtol=1e-6)
    out.sum().backward()
    assert x.grad is not None


def test_repeats_and_packs(device: ph.Device) -> None:
    x = ph.tensor([[1.0, 2.0]], device=device)
    assert einops.repeat(x, "a b -> (a k) b l", k=2, l=2).shape == (2, 2, 2)
    packed, shapes = einops.pack([x, ph.zeros((3, 2), device=device)], "* b")
    assert packed.shape == (4, 2)
    assert [part.shape for part in einops.unpack(packed, shapes, "* b")] == [(1, 2), (3, 2)]
    assert einops.rearrange([x, x], "n a b -> a (n b)").tolist() == [[1, 2, 1, 2]]


@pytest.mark.parametrize("order", ["import polyhal, einops", "import einops, polyhal"])
def test_either_package_may_be_imported_first(order: str) -> None:
    check = "assert einops.rearrange(polyhal.zeros((2, 3), device='numpy'), 'a b -> b a').shape == (3, 2)"
    program = f"import sys; sys.path[:] = {sys.path!r}\n{order}\n{check}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
