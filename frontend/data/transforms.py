"""Transforms of images as NumPy arrays, for datasets. Names and arguments equal torchvision's `transforms`.

Images are (..., C, H, W), floating-point from 0 to 1 or uint8, except for the input of `ToTensor`. Random transforms draw from
`sample_generator`, so that a loader's batch does not depend on the process that reads it and is equal in every run; or from a
NumPy generator that is passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.data.randomness import sample_generator
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.tensor_like import Array

_GRAY = np.array([0.2989, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in the brightness. Source: ITU-R BT.601."""


class Compose:
    """A sequence of transforms."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Array) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """Convert an image (H, W) or (H, W, C) to (C, H, W) float32; uint8 is scaled to 0 to 1.

    The result is an array: loaders make tensors of whole batches.
    """

    def __call__(self, image: Array) -> np.ndarray:
        array = np.asarray(image)
        if array.ndim not in (2, 3):
            raise ShapeError(message("ToTensor", f"an image of shape {array.shape}", expected="(H, W) or (H, W, C)"))
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        if array.dtype == np.uint8:
            return np.asarray(np.divide(array, 255, dtype=np.float32))
        return np.ascontiguousarray(array, np.float32)


class Normalize:
    """Subtract `mean` and divide by `std`, per channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = np.asarray(mean, np.float32).reshape(-1, 1, 1)
        self.std = np.asarray(std, np.float32).reshape(-1, 1, 1)
        if not self.std.all():
            raise ValueError(message("Normalize", "std has a zero", expected="positive numbers"))

    def __call__(self, image: Array) -> np.ndarray:
        array = _image("Normalize", image)
        if array.dtype.kind != "f":
            raise TypeError(message("Normalize", f"an image of {array.dtype}", fix="use ToTensor first"))
        return np.asarray((array - self.mean.astype(array.dtype)) / self.std.astype(array.dtype))


class Resize:
    """Resize to (H, W), or the shorter side to a number, by bilinear interpolation with antialiasing, or "nearest"."""

    def __init__(self, size: int | Sequence[int], interpolation: str = "bilinear", antialias: bool = True) -> None:
        if interpolation not in ("bilinear", "nearest"):
            raise ValueError(message("Resize", f"interpolation {interpolation!r}", expected="'bilinear' or 'nearest'"))
        self.size = size
        self.interpolation = interpolation
        self.antialias = antialias

    def __call__(self, image: Array) -> np.ndarray:
        array = _image("Resize", image)
        height, width = array.shape[-2:]
        if isinstance(self.size, int):
            short = min(height, width)
            size = (int(self.size * height / short), int(self.size * width / short))
        else:
            size = (self.size[0], self.size[-1])
        return resize(array, size, self.interpolation, self.antialias)


class CenterCrop:
    """Crop the center (H, W). Smaller images are padded with zeros."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _pair(size)

    def __call__(self, image: Array) -> np.ndarray:
        array, (height, width) = _image("CenterCrop", image), self.size
        missing = [max(0, n - m) for n, m in zip(self.size, array.shape[-2:], strict=True)]
        if any(missing):
            sides = [(n // 2, n - n // 2) for n in missing]
            array = np.pad(array, [(0, 0)] * (array.ndim - 2) + sides)
        top, left = (round((m - n) / 2) for m, n in zip(array.shape[-2:], self.size, strict=True))
        return array[..., top : top + height, left : left + width]


class _RandomTransform:
    """A transform with random numbers."""

    def __init__(self, generator: np.random.Generator | None) -> None:
        self.generator = generator

    def draw(self) -> np.random.Generator:
        """Return the generator for one sample."""
        return sample_generator() if self.generator is None else self.generator


class RandomCrop(_RandomTransform):
    """Crop (H, W) at a random position, after padding each side with `padding` times `fill`. Raises ShapeError."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int = 0,
        fill: float = 0,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.size = _pair(size)
        self.padding = padding
        self.fill = fill

    def __call__(self, image: Array) -> np.ndarray:
        array, (height, width) = _image("RandomCrop", image), self.size
        if self.padding:
            sides = [(0, 0)] * (array.ndim - 2) + [(self.padding, self.padding)] * 2
            array = np.pad(array, sides, constant_values=self.fill)
        free = [m - n for m, n in zip(array.shape[-2:], self.size, strict=True)]
        if min(free) < 0:
            raise ShapeError(message("RandomCrop", f"{self.size} of {array.shape[-2:]}", fix="pad or resize first"))
        random = self.draw()
        top, left = (int(random.integers(n + 1)) for n in free)
        return array[..., top : top + height, left : left + width]


class RandomHorizontalFlip(_RandomTransform):
    """Mirror left and right with probability `p`."""

    axis = -1

    def __init__(self, p: float = 0.5, generator: np.random.Generator | None = None) -> None:
        super().__init__(generator)
        self.p = p

    def __call__(self, image: Array) -> np.ndarray:
        array = _image(type(self).__name__, image)
        return np.flip(array, self.axis) if self.draw().random() < self.p else array


class RandomVerticalFlip(RandomHorizontalFlip):
    """Mirror top and bottom with probability `p`."""

    axis = -2


class RandomResizedCrop(_RandomTransform):
    """Crop a region of random area and aspect ratio, and resize it to `size`.

    `scale` bounds the area as a fraction of the image, `ratio` the width divided by the height.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        self.size = _pair(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation

    def __call__(self, image: Array) -> np.ndarray:
        array = _image("RandomResizedCrop", image)
        top, left, height, width = self.region(*array.shape[-2:])
        return resize(array[..., top : top + height, left : left + width], self.size, self.interpolation)

    def region(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Draw top, left, height and width; after ten draws that do not fit, the largest region in the center."""
        random = self.draw()
        for _ in range(10):
            area = height * width * random.uniform(*self.scale)
            ratio = math.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return int(random.integers(height - h + 1)), int(random.integers(width - w + 1)), h, w
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        h, w = min(height, round(width / ratio)), min(width, round(height * ratio))
        return (height - h) // 2, (width - w) // 2, h, w


class ColorJitter(_RandomTransform):
    """Change brightness, contrast and saturation of RGB images by random factors from 1 - x to 1 + x, in random order."""

    def __init__(
        self,
        brightness: float = 0,
        contrast: float = 0,
        saturation: float = 0,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(generator)
        if min(brightness, contrast, saturation) < 0:
            raise ValueError(message("ColorJitter", "a strength is negative", expected="0 or more"))
        self.strengths = {"brightness": brightness, "contrast": contrast, "saturation": saturation}

    def __call__(self, image: Array) -> np.ndarray:
        array, random = _image("ColorJitter", image), self.draw()
        for name in random.permutation(list(self.strengths)):
            x = self.strengths[name]
            if x:
                array = adjust(array, name, random.uniform(max(0.0, 1 - x), 1 + x))
        return array


def adjust(image: np.ndarray, what: str, factor: float) -> np.ndarray:
    """Change "brightness", "contrast" or "saturation" by a factor; the result is clipped to the range of its dtype."""
    values = image.astype(np.float32)
    if what == "brightness":
        base: Any = 0.0
    else:
        base = np.einsum("c,...chw->...hw", _GRAY, values)[..., None, :, :] if values.shape[-3] == 3 else values
        if image.dtype == np.uint8:
            base = np.floor(base)
        if what == "contrast":
            base = base.mean(axis=(-3, -2, -1), keepdims=True, dtype=np.float32)
    top = 255 if image.dtype == np.uint8 else 1
    blended: np.ndarray = np.clip(factor * values + (1 - factor) * base, 0, top).astype(image.dtype)
    return blended


def resize(
    image: np.ndarray, size: tuple[int, int], interpolation: str = "bilinear", antialias: bool = True
) -> np.ndarray:
    """Resize the last two axes to `size`. uint8 is rounded."""
    for axis, length in ((-2, size[0]), (-1, size[1])):
        if length < 1 or image.shape[axis] < 1:
            raise ShapeError(message("resize", f"{image.shape[-2:]} to {size}", expected="positive lengths"))
    if interpolation == "nearest":
        rows, columns = (_nearest(image.shape[axis], n) for axis, n in ((-2, size[0]), (-1, size[1])))
        return image[..., rows[:, None], columns]
    kind = np.float64 if image.dtype == np.float64 else np.float32
    rows, columns = (_weights(image.shape[axis], n, antialias) for axis, n in ((-2, size[0]), (-1, size[1])))
    result = rows.astype(kind) @ image.astype(kind) @ columns.T.astype(kind)
    if image.dtype.kind in "iu":
        info = np.iinfo(image.dtype)
        result = np.clip(np.rint(result), info.min, info.max)
    return np.asarray(result.astype(image.dtype))


def _nearest(old: int, new: int) -> np.ndarray:
    return np.asarray(np.minimum(np.arange(new) * old // new, old - 1))


def _weights(old: int, new: int, antialias: bool) -> np.ndarray:
    """Return the matrix (new, old) of bilinear interpolation; with antialiasing, its triangle is as wide as the new pixels."""
    scale = old / new
    width = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(new) + 0.5) * scale - 0.5
    if not antialias:
        centers = np.clip(centers, 0, old - 1)
    weights = np.maximum(0, 1 - np.abs(np.arange(old) - centers[:, None]) / width)
    normalized: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return normalized


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))


def _image(op: str, image: Array) -> np.ndarray:
    array = np.asarray(image)
    if array.ndim < 3:
        raise ShapeError(
            message(op, f"an image of shape {array.shape}", expected="(..., C, H, W)", fix="use ToTensor first")
        )
    return array
