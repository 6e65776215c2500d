"""The softmax between the products of attention, and its gradient. Kernel: kernels/attention/softmax.cu."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.problems import attention
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy.launch import Parameter, Pointer, longs, pointers, uints, ulongs
from polyhal_cupy.lowering.attention.problem import AttentionProblem, Part, score_dtype
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.runtime import Runtime


class SoftmaxLauncher:
    """Builds the launches of one call for parts of its batch."""

    def __init__(
        self, runtime: Runtime, problem: AttentionProblem, dtype: DType, mask: InputSpec | None, causal: bool, band: int
    ) -> None:
        """`band` is the number of queries of a band."""
        self._runtime = runtime
        self._problem = problem
        self._mask = mask
        self._dtype = dtype
        self._band = band
        self.split = dtype is not score_dtype(dtype)
        """Whether results are stored as sums of two half-precision terms."""
        self._definitions: dict[str, str | int | bool] = {
            "CAUSAL": causal, "MASK": attention.mask_kind(mask),
            "MASK_DTYPE": "float32" if mask is None else mask.dtype.name, "SPLIT": self.split, "SPLIT_DTYPE": dtype.name,
        }  # fmt: skip

    def launch(
        self, kernel: str, part: Part, scores: Sequence[int], mask: int, lse: int, terms: Sequence[int]
    ) -> Launch | Declined:
        """Return a launch on the arguments with these indices; `terms` are those of the half-precision terms, if split."""
        problem, dtype = self._problem, score_dtype(self._dtype)
        arranged = rows.arrange((contiguous(dtype, (part.count * problem.t, problem.s)),), 1)
        if isinstance(arranged, Declined):
            return arranged
        mask_parameters: list[Parameter] = []
        if isinstance(self._mask, Spec):
            offset = part.start * problem.batch_strides[-1][0] * self._mask.dtype.itemsize
            mask_parameters = [Pointer(mask, offset)]
        first_row = part.start * problem.matrices_per_index * problem.t
        parameters: list[Parameter] = [
            *pointers(*scores), *mask_parameters, Pointer(lse, first_row * dtype.itemsize), *pointers(*terms),
            *ulongs(arranged.count), *uints(problem.s, problem.t, self._band, *part.batch[1:]),
            *longs(*problem.batch_strides[-1], *problem.mask_strides),
        ]  # fmt: skip
        definitions = arranged.definitions | self._definitions
        return self._runtime.launch(
            kernel, "attention/softmax", definitions, parameters, arranged.blocks, arranged.threads, kernel=kernel
        )
