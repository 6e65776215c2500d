"""Transforms of images, compared with PyTorch's interpolation."""

from __future__ import annotations

import numpy as np
import pytest

from polyhal.data import DataLoader, transforms
from polyhal.hal.errors import ShapeError

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.random((3, 9, 14), np.float32)
BYTES = RANDOM.integers(0, 256, (3, 9, 14), np.uint8)


def test_conversion_and_normalization() -> None:
    pixels = BYTES.transpose(1, 2, 0)
    image = transforms.ToTensor()(pixels)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, BYTES / 255, rtol=1e-6)
    assert transforms.ToTensor()(pixels[..., 0]).shape == (1, 9, 14)
    result = transforms.Normalize([0.5, 0, 1], [2, 1, 0.5])(image)
    np.testing.assert_allclose(result[2], (BYTES[2] / 255 - 1) / 0.5, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="ToTensor"):
        transforms.Normalize([0], [1])(BYTES)


@pytest.mark.parametrize("size", [(4, 5), (20, 30), (9, 7), (13, 3), (1, 1)])
@pytest.mark.parametrize("antialias", [True, False])
def test_resizing_is_pytorchs(size: tuple[int, int], antialias: bool) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(IMAGE)[None]
    expected = torch.nn.functional.interpolate(x, size, mode="bilinear", antialias=antialias)[0]
    np.testing.assert_allclose(transforms.Resize(size, antialias=antialias)(IMAGE), expected, rtol=1e-4, atol=1e-5)
    nearest = torch.nn.functional.interpolate(x, size, mode="nearest")[0]
    assert np.array_equal(transforms.Resize(size, "nearest")(IMAGE), nearest)


def test_resizing_bytes_and_the_shorter_side() -> None:
    small = transforms.Resize(6)(BYTES)
    assert small.shape == (3, 6, 9)
    assert small.dtype == np.uint8
    exact = transforms.Resize(6)(BYTES.astype(np.float64))
    assert np.abs(small - exact).max() <= 0.5 + 1e-4


def test_crops() -> None:
    assert np.array_equal(transforms.CenterCrop((5, 4))(IMAGE), IMAGE[:, 2:7, 5:9])
    padded = transforms.CenterCrop(12)(IMAGE)
    assert padded.shape == (3, 12, 12)
    assert np.array_equal(padded[:, 1:10], IMAGE[..., 1:13])
    places = {transforms.RandomCrop(8)(IMAGE).tobytes() for _ in range(60)}
    assert len(places) > 5
    assert transforms.RandomCrop(12, padding=2)(IMAGE).shape == (3, 12, 12)
    with pytest.raises(ShapeError, match="RandomCrop"):
        transforms.RandomCrop(12)(IMAGE)


def test_regions_have_the_area_and_ratio_asked_for() -> None:
    crop = transforms.RandomResizedCrop(4, scale=(0.2, 0.6), generator=np.random.default_rng(1))
    for _ in range(200):
        top, left, height, width = crop.region(100, 80)
        assert 0 <= top <= 100 - height
        assert 0 <= left <= 80 - width
        assert 0.19 < height * width / 8000 < 0.61
        assert 0.72 < width / height < 1.38
    assert crop(IMAGE).shape == (3, 4, 4)
    narrow = transforms.RandomResizedCrop(4, scale=(1, 1)).region(10, 1000)
    assert narrow[2:] == (10, 13)


def test_flips() -> None:
    assert np.array_equal(transforms.RandomHorizontalFlip(1.0)(IMAGE), IMAGE[..., ::-1])
    assert np.array_equal(transforms.RandomVerticalFlip(1.0)(IMAGE), IMAGE[:, ::-1])
    assert np.array_equal(transforms.RandomHorizontalFlip(0.0)(IMAGE), IMAGE)


def test_colors() -> None:
    gray = 0.2989 * IMAGE[0] + 0.587 * IMAGE[1] + 0.114 * IMAGE[2]
    np.testing.assert_allclose(transforms.adjust(IMAGE, "brightness", 0.5), IMAGE / 2, rtol=1e-6)
    np.testing.assert_allclose(transforms.adjust(IMAGE, "saturation", 0.0), np.stack([gray] * 3), rtol=1e-5)
    np.testing.assert_allclose(transforms.adjust(IMAGE, "contrast", 0.0), np.full_like(IMAGE, gray.mean()), rtol=1e-5)
    assert np.array_equal(transforms.adjust(IMAGE, "contrast", 1.0), IMAGE)
    jittered = transforms.ColorJitter(0.4, 0.4, 0.4)(BYTES)
    assert jittered.dtype == np.uint8
    assert not np.array_equal(jittered, BYTES)


class Augmented:
    """One image, changed at random."""

    def __init__(self) -> None:
        self.transform = transforms.Compose([transforms.RandomCrop(6), transforms.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> np.ndarray:
        return self.transform(IMAGE)


def test_loaders_make_transforms_reproducible() -> None:
    def epochs(prefetch: int) -> list[np.ndarray]:
        loader = DataLoader(Augmented(), 2, seed=4, device="numpy", prefetch=prefetch)
        return [x.numpy() for _ in range(2) for x in loader]

    a, b = epochs(0), epochs(2)
    assert all(map(np.array_equal, a, b))
    assert not np.array_equal(a[0], a[3]), "epochs differ"
