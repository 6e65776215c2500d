"""The schema of an op: the names of its inputs, parameters and outputs.

Most schemas are read off the signature of the op's NumPy reference, so that nothing is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.ops.arguments import arguments
from polyhal.hal.protocol import InputSpec

Specs = tuple[InputSpec | None, ...]
"""The inputs as the rules of an op see them: specs of tensors and of Python numbers, None for absent inputs."""
Params = Mapping[str, Any]
"""Values of the parameters of a call by name: numbers, dtypes, shapes, names, arrays of numbers."""
Inputs = tuple[Any, ...]
"""The inputs of a call in the order of the schema: the frontend's tensors, Python numbers, None for absent inputs."""
ParamValues = tuple[Any, ...]
"""Values of the parameters of a call in the order of the schema, hashable in the key of a plan."""
Output = tuple[DType, tuple[int, ...]]
"""Dtype and shape of a result. Results are contiguous."""
Promotion = Literal["any", "float", "numeric", "number", "integral", "integer", "bool", "cast"]
"""The dtype in which an elementwise op computes: the promoted dtype of its inputs (`any`; `numeric` refuses bool, `number`
takes it for int64, `integral` refuses floats, and `integer` bool too), that dtype made floating point (`float`), bool, or
each input's own dtype (`cast`)."""


class IndexRange(NamedTuple):
    """Which input of an op holds indices, and which are in range: `low` to `high` - 1, and `ignored`."""

    input: int
    low: int
    high: int
    ignored: int | None = None


REQUIRED: Any = inspect.Parameter.empty
"""The default of a parameter that has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """Inputs, parameters and results of a call of an op."""

    inputs: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    """Inputs that may be absent."""
    variadic: bool = False
    """The one input is a sequence of any length."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Names and defaults; `REQUIRED` where there is none."""
    outputs: tuple[str, ...] = ("out",)
    mutates: tuple[int, ...] = ()
    """Inputs that the outputs replace in place: output i replaces input mutates[i]."""
    variadic_outputs: bool = False
    """The number of outputs depends on inputs and parameters; they are returned as a tuple, even a single one."""

    @classmethod
    def of(
        cls,
        reference: Callable[..., Any],
        *,
        outputs: tuple[str, ...] = ("out",),
        mutates: tuple[int, ...] = (),
        variadic_outputs: bool = False,
    ) -> Schema:
        """Read inputs and parameters off a reference: positional parameters are inputs, keyword-only ones parameters."""
        inputs, params, defaults, variadic = arguments(reference)
        return cls(
            inputs=inputs,
            optional=frozenset(name for name in inputs if name in defaults),
            variadic=variadic,
            params={name: defaults.get(name, REQUIRED) for name in params},
            outputs=outputs,
            mutates=mutates,
            variadic_outputs=variadic_outputs,
        )

    @property
    def returns_tuple(self) -> bool:
        """True if a call returns a tuple rather than its only result."""
        return len(self.outputs) > 1 or self.variadic_outputs or bool(self.mutates)


def tensors(specs: Specs) -> list[Spec]:
    """The inputs that are tensors, without numbers and absent ones."""
    return [s for s in specs if isinstance(s, Spec)]


def tensor_at(specs: Specs, index: int) -> Spec:
    """The input of that position. Raises TypeError if it is no tensor."""
    spec = specs[index]
    if not isinstance(spec, Spec):
        raise TypeError(f"input {index} is {'absent' if spec is None else f'a {spec}'}; expected a tensor")
    return spec


def first_tensor(specs: Specs) -> Spec:
    """The first input. Raises TypeError if it is no tensor."""
    return tensor_at(specs, 0)
