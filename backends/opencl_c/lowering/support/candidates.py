"""Choice among several kernels for one problem: the fastest that the driver compiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from polyhal.hal.errors import KernelBuildError
from polyhal.hal.protocol import Launch


def first_that_builds(candidates: Sequence[Callable[[], Launch]]) -> Launch:
    """Build the first of the launches, ordered fastest first, that the driver compiles for the required group size.

    Warns of each refused kernel, and raises KernelBuildError if the last one is refused.
    """
    *preferred, last = candidates
    for candidate in preferred:
        try:
            return candidate()
        except KernelBuildError as error:
            text = f"a slower kernel replaces one that the driver refused: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return last()
