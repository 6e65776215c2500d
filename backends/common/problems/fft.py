"""Fourier transforms as passes over memory, for every shader language.

A pass transforms rows of a length that fits in a group's local memory. A longer transform of n = n1 n2 numbers is a pass over
n1, at a distance of n2, whose results are multiplied by roots of unity, and one over n2 ("four-step" algorithm: Bailey 1990);
n2 may be split again. A length with a prime factor that is not a radix becomes a convolution of a padded length (Bluestein
1970). An even number of real numbers is transformed as half as many complex ones.

An inverse transform is a transform with real and imaginary parts exchanged, of operand and result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.fft_lengths import padded_length, pass_lengths, radices
from polyhal.backends.common.problems.fft_tables import Numbers, chirp, chirp_spectrum
from polyhal.hal.layout import collapse, contiguous_strides
from polyhal.hal.protocol import Declined

BATCH_AXES = 3
"""Axes over which rows are numbered, after merging."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The real or the imaginary parts of complex numbers in memory."""

    memory: Tensor | Workspace
    strides: tuple[int, ...]
    """Strides per axis: of a tensor, or of the rows' axes and along a row."""
    start: int = 0
    """Index of the first element."""


@dataclass(frozen=True, slots=True)
class Planes:
    """Complex numbers in memory. An absent part is 0 in an operand and not stored in a result."""

    re: Plane | None
    im: Plane | None

    @property
    def swapped(self) -> Planes:
        """The numbers with real and imaginary parts exchanged."""
        return Planes(self.im, self.re)

    def each(self, function: Callable[[Plane], Plane]) -> Planes:
        """Apply a function to each plane."""
        return Planes(*(None if p is None else function(p) for p in (self.re, self.im)))


@dataclass(frozen=True, slots=True)
class Load:
    """Operand of a transform, by the positions of its elements."""

    kind: str = "complex"
    """`complex`; `half_even` or `half_odd`: half the spectrum of real numbers, with parts exchanged after the load."""
    count: int = 0
    """Elements in memory; the others are 0. 0 if all are in memory."""
    factors: Numbers | None = None
    """A factor of each element in memory."""
    steps: tuple[int, int] = (0, 0)
    """Strides of real and imaginary parts along the transformed axis, for half spectra."""
    length: int = 0
    """Length of the whole transform, for half spectra."""


@dataclass(frozen=True, slots=True)
class Store:
    """Result of a transform, by the positions of its elements."""

    kind: str = "complex"
    """`complex`; `half`: half the spectrum of twice as many real numbers."""
    count: int = 0
    """Elements to store; 0 for all."""
    factors: Numbers | None = None
    """A factor of each element."""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Transforms of one length, of all rows. Strides are along four outer axes, neighbouring rows (lanes), and elements."""

    length: int
    radices: tuple[int, ...]
    outer: tuple[int, ...]
    lanes: int
    source: Planes
    target: Planes
    source_position: tuple[int, ...] = (0, 0, 0)
    """Strides of an element's position in the whole transform, along the last outer axis, lanes and elements."""
    target_position: tuple[int, ...] = (0, 0, 0)
    twiddled: int = 0
    """Order n of the roots of unity by which result k of lane j is multiplied, to the power k j; 0 for none."""
    load: Load = Load()
    store: Store = Store()

    @property
    def source_lanes_first(self) -> bool:
        """True if neighbouring rows of the operand are nearer in memory than neighbouring elements."""
        return _lanes_first(self.source)

    @property
    def target_lanes_first(self) -> bool:
        """True if neighbouring rows of the result are nearer in memory than neighbouring elements."""
        return _lanes_first(self.target)

    @property
    def whole_rows(self) -> bool:
        """True if a row is a whole transform, so that an element's index is its position."""
        return self.source_position == self.target_position == (0, 0, 1)


@dataclass(frozen=True, slots=True)
class HalfSpectrum:
    """The last step of real transforms of several passes: half a spectrum from the spectrum of half as many complex numbers."""

    length: int
    """Complex numbers of a row of `source`; a row of `target` has one more."""
    outer: tuple[int, ...]
    source: Planes
    target: Planes
    scale: float


Step = Pass | HalfSpectrum


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Maximum lengths of passes on a device."""

    single: int
    """Elements of a transform of one pass."""
    several: int
    """Elements of each pass of a longer transform."""
    radix_bits: int = 4
    """Binary logarithm of the largest power of two that is a radix."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of operand and result along one axis."""

    outer: tuple[int, ...]
    """Lengths of three outer axes."""
    source: Planes
    target: Planes

    @property
    def count(self) -> int:
        """Number of rows."""
        return math.prod(self.outer)


def rows_along(axis: int, shape: Sequence[int], source: Planes, target: Planes) -> Rows | Declined:
    """Merge the axes of `shape` other than `axis`. Declines if more than three remain."""
    planes = [p for p in (source.re, source.im, target.re, target.im) if p is not None]
    others = [i for i in range(len(shape)) if i != axis]
    lengths, strides = collapse(
        tuple(shape[i] for i in others), tuple(tuple(p.strides[i] for i in others) for p in planes)
    )
    if len(lengths) > BATCH_AXES:
        return Declined(f"{len(lengths)} axes of rows remain after merging; the kernels support {BATCH_AXES}")
    fill = BATCH_AXES - len(lengths)
    merged = {p: (*(0,) * fill, *s, p.strides[axis]) for p, s in zip(planes, strides, strict=True)}

    def over_rows(plane: Plane) -> Plane:
        return replace(plane, strides=merged[plane])

    return Rows((1,) * fill + lengths, source.each(over_rows), target.each(over_rows))


@dataclass(slots=True)
class FourierPlan:
    """Steps and temporary memory of transforms along one axis or several."""

    limits: PassLimits
    itemsize: int
    first_workspace: int
    steps: list[Step] = field(default_factory=list)
    workspace: list[int] = field(default_factory=list)

    def temporary(self, shape: Sequence[int]) -> Planes:
        """Allocate contiguous complex numbers."""
        nbytes, strides = math.prod(shape) * self.itemsize, contiguous_strides(tuple(shape))
        planes = []
        for _ in range(2):
            planes.append(Plane(Workspace(self.first_workspace + len(self.workspace)), strides))
            self.workspace.append(max(nbytes, self.itemsize))
        return Planes(*planes)

    def transform(self, rows: Rows, n: int, load: Load, store: Store) -> Declined | None:
        """Append the steps of transforms of n elements. Declines lengths that are too large."""
        lengths = pass_lengths(n, self.limits.single, self.limits.several)
        if len(lengths) == 1:
            self.steps.append(_single(rows, self._radices(n), load, store))
        elif lengths:
            self._several(rows, lengths, load, store)
        elif not radices(n):
            return self._convolution(rows, n, load, store)
        else:
            return Declined(f"length {n} is not a product of three numbers of at most {self.limits.several}")
        return None

    def half_spectrum(self, rows: Rows, half: int, count: int, scale: float) -> Declined | None:
        """Append the transforms of 2 `half` real numbers, given as complex ones, to half their spectrum.

        `count` complex numbers are in memory, and the others are 0; all if it is 0.
        """
        if pass_lengths(half, self.limits.single, 0):
            return self.transform(rows, half, Load(count=count), Store("half", scale=scale))
        between = self.temporary((*rows.outer, half))
        declined = self.transform(replace(rows, target=between), half, Load(count=count), Store())
        self.steps.append(HalfSpectrum(half, rows.outer, between, rows.target, scale))
        return declined

    def _radices(self, n: int) -> tuple[int, ...]:
        return radices(n, self.limits.radix_bits)

    def _several(self, rows: Rows, lengths: tuple[int, ...], load: Load, store: Store) -> None:
        """Append several passes; all but the last leave each element in its column of a matrix."""
        n = math.prod(lengths)
        between = self.temporary((*rows.outer, n))
        done = 1
        source = rows.source
        for length in lengths[:-1]:
            rest = n // (done * length)
            outer = (*rows.outer, done)
            place = (rest * length, 1, rest)
            self.steps.append(
                Pass(
                    length,
                    self._radices(length),
                    outer,
                    rest,
                    _along(source, place),
                    _along(between, place),
                    source_position=place,
                    twiddled=rest * length,
                    load=load if done == 1 else Load(),
                )
            )
            source, done = between, done * length
        first, last = lengths[0], lengths[-1]
        self.steps.append(
            Pass(
                last,
                self._radices(last),
                (*rows.outer, done // first),
                first,
                _along(between, (last, n // first, 1)),
                _along(rows.target, (first, 1, done)),
                target_position=(first, 1, done),
                store=store,
            )
        )

    def _convolution(self, rows: Rows, n: int, load: Load, store: Store) -> Declined | None:
        """Append Bluestein's algorithm: with chirp c, result k is c(k) times the convolution of c x and 1 / c."""
        padded = padded_length(n)
        between = self.temporary((*rows.outer, padded))
        opening = replace(load, count=min(n, load.count or n), factors=chirp(n))
        spectrum = Store(factors=chirp_spectrum(n, padded))
        declined = self.transform(replace(rows, target=between), padded, opening, spectrum)
        closing = replace(store, count=min(n, store.count or n), factors=chirp(n).conj())
        back = Rows(rows.outer, between.swapped, rows.target.swapped)
        return declined or self.transform(back, padded, Load(), closing)


def _along(planes: Planes, place: Sequence[int]) -> Planes:
    """Replace the step along rows by those of an outer axis, lanes and elements, in units of it."""
    return planes.each(lambda p: replace(p, strides=(*p.strides[:BATCH_AXES], *(p.strides[-1] * n for n in place))))


def _lanes_first(planes: Planes) -> bool:
    plane = planes.re or planes.im
    assert plane is not None
    return abs(plane.strides[4]) < abs(plane.strides[5])


def _single(rows: Rows, factors: tuple[int, ...], load: Load, store: Store) -> Pass:
    """Return the pass of transforms that fit in one: neighbouring lanes are the rows with the smallest distance of results."""
    plane = rows.target.re or rows.target.im
    assert plane is not None
    steps = plane.strides
    lane = min(range(BATCH_AXES), key=lambda i: (rows.outer[i] == 1, abs(steps[i])))
    first, second = (i for i in range(BATCH_AXES) if i != lane)

    def arranged(plane: Plane) -> Plane:
        s = plane.strides
        return replace(plane, strides=(s[first], s[second], 0, 0, s[lane], s[BATCH_AXES]))

    return Pass(
        math.prod(factors),
        factors,
        (rows.outer[first], rows.outer[second], 1, 1),
        rows.outer[lane],
        rows.source.each(arranged),
        rows.target.each(arranged),
        source_position=(0, 0, 1),
        target_position=(0, 0, 1),
        load=load,
        store=store,
    )
