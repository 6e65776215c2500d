"""The softmax between the products of attention, and its gradient. Kernel: kernels/attention/softmax.cu."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.launch import Argument, Tensor, Workspace
from polyhal.backends.common.problems import attention
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy.lowering.attention.problem import AttentionProblem, Part, score_dtype
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime

_TERMS = ("p_high", "p_low", "d_high", "d_low")
"""Half-precision terms of the probabilities, and in the gradient also of the scores' gradients."""


class SoftmaxLauncher:
    """Builds the launches of one call for parts of its batch."""

    def __init__(
        self, runtime: Runtime, problem: AttentionProblem, dtype: DType, mask: InputSpec | None, causal: bool, band: int
    ) -> None:
        """Prepare launches for bands of `band` queries."""
        self._runtime = runtime
        self._problem = problem
        self._mask = mask
        self._dtype = dtype
        self._band = band
        self.split = dtype is not score_dtype(dtype)
        """True if results are stored as sums of two half-precision terms."""
        self._definitions: dict[str, str | int | bool] = {
            "CAUSAL": causal, "MASK": attention.mask_kind(mask),
            "MASK_DTYPE": "float32" if mask is None else mask.dtype.name, "SPLIT": self.split, "SPLIT_DTYPE": dtype.name,
        }  # fmt: skip

    def launch(
        self, kernel: str, part: Part, scores: Sequence[int], mask: int, lse: int, terms: Sequence[int]
    ) -> Launch | Declined:
        """Return a launch on the arguments with these indices; `terms` are the half-precision terms, if split."""
        problem, dtype = self._problem, score_dtype(self._dtype)
        arranged = rows.arrange((contiguous(dtype, (part.count * problem.t, problem.s)),), 1)
        if isinstance(arranged, Declined):
            return arranged
        mask0, mask1, mask2 = problem.batch_strides[-1]
        mask_row, mask_column = problem.mask_strides
        args: dict[str, Argument] = {
            **{name: Workspace(i) for name, i in zip(("scores", "gradients"), scores, strict=False)},
            **{name: Workspace(i) for name, i in zip(_TERMS, terms, strict=False)},
            "lse": Tensor(lse), "lse_offset": 2 * part.start * problem.matrices_per_index * problem.t, "rows": arranged.count,
            "keys": problem.s, "queries": problem.t, "band": self._band, "batch1": part.batch[1], "batch2": part.batch[2],
            "mask0": mask0, "mask1": mask1, "mask2": mask2, "mask_row": mask_row, "mask_column": mask_column,
        }  # fmt: skip
        if isinstance(self._mask, Spec):
            args |= {"mask": Tensor(mask), "mask_offset": part.start * mask0}
        definitions = arranged.definitions | self._definitions
        return self._runtime.launch(
            kernel, "attention/softmax", definitions, args, arranged.blocks, arranged.threads, kernel=kernel
        )
