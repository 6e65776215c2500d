"""Random numbers from a counter-based generator, so that the bits for a seed are equal on every device.

The state of a generator is a seed and an offset. Every call takes the counter blocks that it needs and advances the offset, so
that a saved state continues exactly. Source: Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.core.memory.host_memory import check_host_memory
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import message
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops import OPS
from polyhal.random_words import remainders
from polyhal.shapes import Shape, lengths_of
from polyhal.tensor import Tensor
from polyhal.tensor.complex_tensor import join

_WORDS = 4
"""32-bit words in a counter block."""
_LARGEST = 2**63 - 1


class Generator:
    """A stream of random numbers: `seed` names the stream, `offset` counts the blocks that were used.

    Without a seed the operating system provides one. Threads may share a generator. A device in place of the seed, as in
    PyTorch, or as `device`, has no effect: the numbers are the same on every device.
    """

    def __init__(self, seed: int | Device | str | None = None, device: Device | str | None = None) -> None:
        if isinstance(seed, (Device, str)):
            seed = None
        self._lock = threading.Lock()
        self._seed = 0
        self._offset = 0
        self.manual_seed(int.from_bytes(os.urandom(8), "little") & _LARGEST if seed is None else seed)

    @property
    def seed(self) -> int:
        """The seed, set by `manual_seed`."""
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed, as the property `seed`."""
        return self._seed

    @property
    def offset(self) -> int:
        """Number of counter blocks that were used since the seed was set."""
        return self._offset

    def manual_seed(self, seed: int) -> Generator:
        """Restart with the stream `seed` (0 to 2**63 - 1). Raises ValueError."""
        if not 0 <= seed <= _LARGEST:
            raise ValueError(message("manual_seed", f"seed {seed}", expected="an integer from 0 to 2**63 - 1"))
        with self._lock:
            self._seed, self._offset = int(seed), 0
        return self

    def take(self, count: int) -> tuple[int, int]:
        """Use up `count` 32-bit words. Returns the seed and the offset under which they can be drawn.

        In a captured step both are runtime scalars, because each run draws new words.
        """
        region = dispatch.thread.region
        if region is not None:
            result: tuple[int, int] = region.draw(lambda: dispatch.thread.executor.random(self, count))
            return result
        return dispatch.thread.executor.random(self, count)

    def advance(self, count: int) -> tuple[int, int]:
        """Use up `count` words now, captured or not. Returns seed and offset."""
        with self._lock:
            offset = self._offset
            self._offset += -(-count // _WORDS)
        return self._seed, offset

    def get_state(self) -> dict[str, int]:
        """Return the state as plain numbers, for checkpoints."""
        with self._lock:
            return {"seed": self._seed, "offset": self._offset}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Continue from a state of `get_state`."""
        seed, offset = int(state["seed"]), int(state["offset"])
        self.manual_seed(seed)
        with self._lock:
            self._offset = offset

    def words(self, count: int) -> np.ndarray:
        """Draw `count` uint32 on the host, the same as `bits` on a device."""
        seed, offset = self.take(count)
        words: np.ndarray = np.asarray(OPS["random_bits"].reference(seed, offset, shape=(count,)))
        return words

    def permutation(self, n: int) -> np.ndarray:
        """Draw a permutation of 0 to n - 1, int64, on the host. Raises OutOfMemoryError."""
        check_host_memory("permutation", 6 * 8 * n)
        pairs = self.words(2 * n).astype(np.uint64)
        return np.argsort(pairs[:n] << np.uint64(32) | pairs[n:], kind="stable").astype(np.int64)

    def __deepcopy__(self, memo: object) -> Generator:
        """Copies of a module share its generator."""
        return self

    def __reduce__(self) -> Any:
        """Pickle the state. The default generator is unpickled as the default generator of the other process."""
        return "default_generator" if self is default_generator else (_restored, (self._seed, self._offset))

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self._offset})"


def _restored(seed: int, offset: int) -> Generator:
    out = Generator(seed)
    out.set_state({"seed": seed, "offset": offset})
    return out


default_generator = Generator()
"""Used by calls that pass no generator."""


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which makes everything random after it reproducible on any device.

    >>> _ = polyhal.manual_seed(0)
    >>> first = polyhal.rand(3)
    >>> _ = polyhal.manual_seed(0)
    >>> bool((polyhal.rand(3) == first).all())
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator by the operating system. Returns the seed."""
    return default_generator.manual_seed(Generator().seed).seed


def initial_seed() -> int:
    """Return the seed of the default generator."""
    return default_generator.seed


def get_rng_state() -> dict[str, int]:
    """Return the state of the default generator as plain numbers, for checkpoints."""
    return default_generator.get_state()


def set_rng_state(state: Mapping[str, int]) -> None:
    """Continue the default generator from a state of `get_rng_state`."""
    default_generator.set_state(state)


def _draw(
    op: str, shape: Shape, params: tuple[DType, ...], generator: Generator | None, device: Device | str | None
) -> Tensor:
    """Run a random op on words reserved for it in the generator."""
    lengths, count = _size(shape)
    seed, offset = (generator or default_generator).take(count)
    out: Tensor = dispatch.apply(OPS[op], (seed, offset), (lengths, *params), dispatch.target_device(device))
    return out


def _drawn_in(op: str, shape: Shape, dtype: object, generator: Generator | None, device: Device | str | None) -> Tensor:
    """Draw numbers of a distribution in a dtype, which may be complex."""
    kind = as_dtype(dtype or dtypes.DEFAULT_FLOAT)
    if not kind.is_complex:
        return _draw(op, shape, (kind,), generator, device)
    parts = _draw(op, (2, *lengths_of("random", shape)), (dtypes.component(kind),), generator, device)
    if op == "normal":
        parts = parts * math.sqrt(0.5)
    return join(parts[0], parts[1])


def _size(shape: Shape) -> tuple[tuple[int, ...], int]:
    lengths = lengths_of("random", *shape) if isinstance(shape, (tuple, list)) else lengths_of("random", shape)
    return lengths, int(np.prod(lengths, dtype=np.int64))


def bits(shape: Shape, *, generator: Generator | None = None, device: Device | str | None = None) -> Tensor:
    """Draw uint32 of `shape`."""
    return _draw("random_bits", shape, (), generator, device)


def unsigned_words(shape: Shape, *, generator: Generator | None = None, device: Device | str | None = None) -> Tensor:
    """Draw the numbers of `bits` for `random_words`: int32 with the same bits on a device without uint32."""
    target = dispatch.target_device(device)
    has_unsigned = dtypes.uint32 in target.capabilities.storage
    return _draw("random_bits" if has_unsigned else "random_words", shape, (), generator, target)


def rand(
    *shape: Any,
    size: Any = None,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw uniform numbers in [0, 1): `rand(2, 3)` or `rand((2, 3))`; float32 by default.

    In a complex dtype, both parts are uniform numbers.

    >>> polyhal.rand((2, 3)).shape
    (2, 3)
    """
    out = _drawn_in("uniform", lengths_of("rand", *shape, size=size), dtype, generator, device)
    return out.requires_grad_() if requires_grad else out


def randn(
    *shape: Any,
    size: Shape | None = None,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw from the standard normal distribution: `randn(2, 3)` or `randn((2, 3))`; float32 by default.

    In a complex dtype, each part has variance 1/2.

    >>> polyhal.randn((2, 3)).shape
    (2, 3)
    """
    out = _drawn_in("normal", lengths_of("randn", *shape, size=size), dtype, generator, device)
    return out.requires_grad_() if requires_grad else out


def uniform(
    low: float,
    high: float,
    shape: Shape,
    *,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Draw uniform numbers in [low, high)."""
    return rand(shape, dtype=dtype, generator=generator, device=device) * (high - low) + low


def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    shape: Shape | None = None,
    *,
    size: Shape | None = None,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw from the normal distribution with the given mean and standard deviation.

    Tensors of means or deviations are broadcast and determine shape, dtype and device; gradients do not flow into them.
    Raises ValueError for a negative deviation, and for numbers without a shape.
    """
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not isinstance(std, Tensor) and std < 0:
        raise ValueError(message("normal", f"std is {std}", expected="0 or more"))
    lengths: Any = size if shape is None else shape
    if given:
        lengths, device = broadcast_shapes(*(x.shape for x in given)), given[0].device
        dtype = dtype or given[0].dtype
    elif lengths is None:
        raise ValueError(message("normal", "numbers as mean and std leave the shape open", expected="a shape"))
    center, width = (x.detach() if isinstance(x, Tensor) else x for x in (mean, std))
    out: Tensor = randn(lengths, dtype=dtype, generator=generator, device=device) * width + center
    return out.requires_grad_() if requires_grad else out


def randint(
    low: Tensor | int = 0,
    high: Any = None,
    shape: Shape | None = None,
    *,
    size: Shape | None = None,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Draw integers from `low` up to, not including, `high`; int64 by default.

    `randint(high, shape)` starts at 0. PyTorch's keyword `size` means `shape`.

    Random words are reduced modulo the range: the probabilities of two results differ by a relative range / 2**32 at most, or
    range / 2**63 for ranges beyond 2**32. Raises ValueError for an empty range, and TypeError without a shape.

    >>> polyhal.randint(0, 10, (4,)).shape
    (4,)
    """
    if isinstance(high, (tuple, list)):
        low, high, shape = 0, low, high
    shape = size if shape is None else shape
    if shape is None:
        raise TypeError(message("randint", "there is no shape", expected="randint(high, shape) or (low, high, shape)"))
    low, high = (0, low) if high is None else (low, high)
    if high <= low:
        raise ValueError(message("randint", f"there are no integers from {low} up to {high}", expected="low < high"))
    kind = as_dtype(dtype or dtypes.DEFAULT_INT)
    for bound in (low, high - 1):
        require_fit("randint", bound, kind)
    lengths, count = _size(shape)
    span = high - low
    if span <= 2**32 - 1:
        drawn = remainders(unsigned_words(lengths, generator=generator, device=device), span).to(kind)
        return drawn.add_(low) if low else drawn
    if span > _LARGEST:
        raise ValueError(message("randint", f"a range of {span} integers", expected="at most 2**63 - 1"))
    words = bits((2, count), generator=generator, device=device).to(dtypes.int64)
    wide = ops.bitwise_and(ops.bitwise_or(ops.bitwise_left_shift(words[0], 32), words[1]), _LARGEST)
    out: Tensor = (ops.remainder(wide, span) + low).reshape(lengths).to(kind)
    return out


def bernoulli(
    p: Tensor | float,
    shape: Shape | float | None = None,
    *,
    dtype: object = None,
    generator: Generator | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Draw 1 with probability `p`, else 0. A tensor of probabilities determines shape, dtype and device.

    A float in place of the shape, as in PyTorch, is the probability, and the tensor determines only shape, dtype and
    device. Raises ValueError for a number without a shape.
    """
    if isinstance(p, Tensor) and isinstance(shape, float):
        return bernoulli(shape, p.shape, dtype=dtype or p.dtype, generator=generator, device=p.device)
    shape = None if isinstance(shape, float) else shape
    if isinstance(p, Tensor):
        drawn = rand(p.shape if shape is None else shape, generator=generator, device=p.device)
        return ops.less(drawn, p.detach()).to(as_dtype(dtype or p.dtype))
    if shape is None:
        raise ValueError(message("bernoulli", "a number as probability leaves the shape open", expected="a shape"))
    drawn = rand(shape, generator=generator, device=device)
    return ops.less(drawn, float(p)).to(as_dtype(dtype or dtypes.DEFAULT_FLOAT))


def randperm(
    n: int, *, dtype: object = None, generator: Generator | None = None, device: Device | str | None = None
) -> Tensor:
    """Draw a permutation of the integers 0 to n - 1; int64 by default."""
    order = (generator or default_generator).permutation(n)
    return Tensor(order, dtype=as_dtype(dtype or dtypes.DEFAULT_INT), device=device)


__all__ = [
    "Generator",
    "bernoulli",
    "bits",
    "default_generator",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "normal",
    "rand",
    "randint",
    "randn",
    "randperm",
    "seed",
    "set_rng_state",
    "uniform",
]
