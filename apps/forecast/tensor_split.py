"""One device's part of a model with layers split among several devices: slices of weights, and fewer heads.

Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053. The first linear layer of a pair is split by its outputs (columns),
the second by its inputs (rows), so that a pair requires one sum over the devices, of the second layer's results.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal import Tensor, empty
from polyhal.hal.errors import message
from polyhal.nn import Module, Parameter


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """Weights that are split, by suffixes of their modules' paths."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    heads: tuple[tuple[str, str], ...]
    """Suffix of a module's path and name of its attribute that counts heads."""
    embedding: str
    """Path of the token table, which is split by tokens."""
    head: str
    """Path of the layer of logits, which is also split by tokens; empty if there is none."""
    divides: tuple[int, ...]
    """Numbers that must be multiples of the degree."""

    def allows(self, degree: int) -> bool:
        """Return whether layers can be split among `degree` devices."""
        return all(n % degree == 0 for n in self.divides)

    def is_row(self, path: str) -> bool:
        """Return whether a module's results are summed over the devices."""
        return _ends(path, self.rows)

    def apply(self, model: Module, degree: int) -> None:
        """Keep one device's part of each weight. Raises ValueError if the degree does not divide the model."""
        if not self.allows(degree):
            expected = f"a divisor of {', '.join(map(str, self.divides))}"
            raise ValueError(message(None, f"layers split among {degree} devices", expected=expected))
        modules = dict(model.named_modules())
        tables = [modules[path] for path in (self.embedding, self.head) if path]
        tied = len(tables) == 2 and tables[0].get_parameter("weight") is tables[1].get_parameter("weight")
        for path, module in modules.items():
            if _ends(path, self.columns):
                for name in [n for n, _ in module.named_parameters()]:
                    _slice(module, name, 0, degree)
            elif self.is_row(path):
                _slice(module, "weight", 1, degree)
            for end, attribute in self.heads:
                if _ends(path, (end,)):
                    setattr(module, attribute, getattr(module, attribute) // degree)
        for table in tables[: 1 if tied else None]:
            _slice(table, "weight", 0, degree)
        if tied:
            setattr(tables[1], "weight", tables[0].get_parameter("weight"))  # noqa: B010 - a module's parameter


def _ends(path: str, ends: tuple[str, ...]) -> bool:
    return any(path == end or path.endswith(f".{end}") for end in ends)


def _slice(module: Module, name: str, axis: int, degree: int) -> None:
    """Replace a parameter by one that is `degree` times shorter along an axis, rounded up."""
    whole: Tensor = module.get_parameter(name)
    shape = list(whole.shape)
    shape[axis] = -(-shape[axis] // degree)
    setattr(module, name, Parameter(empty(tuple(shape), whole.dtype, whole.device)))
