"""A recurrent layer as its kernels' arguments: named tensors with their positions in the argument list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polyhal.backends.common.launching.launch import Argument, Strided, Tensor
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import InputSpec

Inputs = tuple[InputSpec | None, ...]
GATES = {"LSTM": 4, "GRU": 3}
"""Gates of each cell."""


@dataclass(frozen=True, slots=True)
class LayerSteps:
    """The time steps of a layer, or of its gradient."""

    cell: str
    """LSTM or GRU."""
    tensors: Mapping[str, tuple[int, Spec]]
    """Position in the argument list and spec of each tensor, by its name in the kernels."""
    steps: int
    batch: int
    size: int
    reverse: bool
    keep_gates: bool = False
    """True if an LSTM stores its gates for the gradient."""

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def weight_bytes(self) -> int:
        return 4 * self.gates * self.size**2

    @property
    def first_workspace(self) -> int:
        """Position of the first workspace in the argument list, after the last result."""
        return 1 + max(place for place, _ in self.tensors.values())

    def forward_definitions(self) -> dict[str, str | int | bool]:
        """Return the definitions of a layer's kernels, except for the division of the work."""
        found: dict[str, str | int | bool] = {"CELL": self.cell, "BIAS": "bias" in self.tensors}
        return {**found, "KEEP_GATES": True} if self.keep_gates else found

    def _results(self, *names: str) -> dict[str, Argument]:
        """Return the contiguous tensors of `names` as kernel arguments, as far as the cell has them."""
        return {name: Tensor(self.tensors[name][0]) for name in names if name in self.tensors}

    def _sequences(self, *names: str) -> dict[str, Argument]:
        """Return tensors (T, B, width) as kernel arguments with their strides; 0 for tensors that the cell lacks."""
        return self._strided(names, ("step", "row"))

    def _states(self, *names: str) -> dict[str, Argument]:
        """Return tensors (B, width) as kernel arguments with their strides; 0 for tensors that the cell lacks."""
        return self._strided(names, ("row",))

    def _strided(self, names: tuple[str, ...], axes: tuple[str, ...]) -> dict[str, Argument]:
        args: dict[str, Argument] = {}
        for name in names:
            if name in self.tensors:
                place, spec = self.tensors[name]
                args[name] = Strided(Tensor(place), dict(zip(axes, spec.strides, strict=False)))
            else:
                args |= {f"{name}_{axis}": 0 for axis in axes}
        return args

    def steps_args(self) -> dict[str, Argument]:
        """Return the arguments of a layer's kernels except for the weight: STEPS_PARAMETERS of recurrent/arguments.h."""
        return {
            **self._sequences("x"),
            **self._states("hidden", "state"),
            **self._results("bias", "outs", "states"),
            **(self._results("kept_gates") if self.keep_gates else {}),
            **self._numbers(),
        }

    def steps_grad_args(self) -> dict[str, Argument]:
        """Return the gradient kernels' arguments except for the weight: STEPS_GRAD_PARAMETERS of recurrent/arguments.h."""
        return {
            **self._sequences("grad", "grad_states", "gates", "fed_back", "states"),
            **self._states("first"),
            **self._results("d_gates", "d_fed_back", "d_hidden", "d_state"),
            **self._numbers(),
        }

    def weight_rows(self) -> Strided:
        """Return the weight as a kernel argument, with contiguous rows."""
        place, spec = self.tensors["weight"]
        return Strided(Tensor(place), {"row": spec.strides[0]})

    def _numbers(self) -> dict[str, Argument]:
        """Return the lengths, arguments of all kernels."""
        return {"steps": self.steps, "batch": self.batch, "size": self.size, "reverse": int(self.reverse)}


def refusal(specs: Inputs, weight: InputSpec | None) -> str:
    """Return the reason why the kernels do not support these tensors; empty if they do.

    All but the weight need contiguous rows.
    """
    if not all(isinstance(s, Spec) and s.dtype is dtypes.float32 for s in (*specs, weight)):
        return "the kernels are for float32"
    if any(s.strides[-1] != 1 and s.shape[-1] > 1 for s in specs if isinstance(s, Spec)):
        return "the units of a tensor are not contiguous"
    return ""
