"""Generator of hal/ops/random/normal_table.py: the normal distribution's quantiles as piecewise cubics of integer coefficients.

The lower half of the distribution is cut at probabilities 2^-2, 2^-3, ... and each octave into eight equal segments: the method
of Lee, Cheung, Villasenor and Luk, Inversion-based hardware Gaussian random number generator: a case study of function
evaluation via hierarchical segmentation (FPT 2006). Each cubic interpolates at Chebyshev's nodes.

Run `python -m tools.normal_table` to write the file again. Requires SciPy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyhal.hal.ops.random import normal

_HEADER = '''"""Written by tools.normal_table; do not edit. See hal/ops/random/normal.py."""

from __future__ import annotations

# fmt: off
COEFFICIENTS: tuple[int, ...] = (
'''


def coefficients() -> np.ndarray:
    """Return four coefficients of each segment, in the layout of normal.quantiles: shape (256, 4), int64."""
    from scipy.special import ndtri  # type: ignore[import-untyped]

    octaves = np.arange(32)[:, None, None]
    segments = np.arange(normal.SEGMENTS)[None, :, None]
    nodes = 0.5 - 0.5 * np.cos((np.arange(4) + 0.5) * np.pi / 4)
    tails = 2.0 ** (31 - octaves) * (1 + (segments + nodes) / normal.SEGMENTS) / 2.0**33
    quantiles = -ndtri(tails).reshape(-1, 4)
    powers = np.linalg.solve(np.vander(nodes, increasing=True), quantiles.T).T
    scaled = powers * np.array([1, -1, 1, -0.5]) * 2.0**normal.FRACTION_BITS
    # Products are truncated, so without the two units the last quantile would be below 0.
    rounded: np.ndarray = np.rint(scaled + np.array([2, 0, 0, 0])).astype(np.int64)
    return rounded


def text() -> str:
    """Return the text of the file."""
    rows = [", ".join(f"0x{n:08x}" for n in row) for row in coefficients().reshape(-1, 8)]
    return _HEADER + "".join(f"    {row},\n" for row in rows) + ")\n"


if __name__ == "__main__":
    Path(normal.__file__).with_name("normal_table.py").write_text(text(), encoding="utf-8")
