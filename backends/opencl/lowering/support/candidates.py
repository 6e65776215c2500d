"""Several kernels for one problem: the fastest that the driver takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from polyhal.hal.errors import KernelBuildError
from polyhal.hal.protocol import Launch


def first_that_builds(candidates: Sequence[Callable[[], Launch]]) -> Launch:
    """Build the first of the launches, given fastest first, that the driver compiles for the groups it needs.

    Warns of each kernel that it refuses, and raises KernelBuildError if it refuses the last one.
    """
    *preferred, last = candidates
    for candidate in preferred:
        try:
            return candidate()
        except KernelBuildError as error:
            text = f"a slower kernel takes the place of one that was refused: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return last()
