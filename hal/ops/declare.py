"""`declare`, the typed constructor that every op goes through, and all names that a file of ops needs.

Families with a common shape rule have constructors of their own that call it: `elementwise`, `reduction`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from polyhal.hal.dtypes import DType
from polyhal.hal.ops.batching import BatchingRule
from polyhal.hal.ops.fusion import EpiloguePattern, Pattern
from polyhal.hal.ops.gradient_rule import Declared, GradientRule, depends, flat_in, linear_in, reads
from polyhal.hal.ops.lowering import (
    AsView,
    CoreCall,
    CoreInput,
    CoreMember,
    Decompose,
    DeviceProgram,
    HostConstant,
    OnDevice,
    OnHost,
    OutputRegion,
    Regions,
    Strategy,
)
from polyhal.hal.ops.names import Names
from polyhal.hal.ops.opdef import OPS, CostRule, InferRule, OpDef, OpFunction, PartOfCall
from polyhal.hal.ops.samples import ErrorSample, OpTests, Sample, Samples, Tolerance
from polyhal.hal.ops.schema import (
    REQUIRED,
    IndexRange,
    Output,
    Params,
    Promotion,
    Schema,
    Specs,
    first_tensor,
    tensor_at,
    tensors,
)
from polyhal.hal.ops.traits import Autocast, Trait

_OWN_NAME = Names()


class OpOptions(TypedDict, total=False):
    """Optional parts of any op's declaration, in addition to schema, rules and lowering; `OpDef` and `OpTests` describe
    each."""

    names: Names
    gradient: Declared
    errors: Sequence[ErrorSample]
    dtypes: tuple[DType, ...]
    tolerance: Tolerance
    unique: Callable[[tuple[np.ndarray, ...]], tuple[Any, ...]]
    traits: Trait
    autocast: Autocast
    spellings: Sequence[Callable[..., Any]]
    fuses: Pattern | EpiloguePattern
    batching: BatchingRule
    settings: tuple[str, ...]
    casts: bool
    expression: str
    flops: CostRule
    index_range: Callable[[Specs, Params], IndexRange]
    without_empty: Callable[[Specs, Params], PartOfCall | None] | None
    public: bool


def declare(
    reference: Callable[..., Any],
    *,
    family: str,
    infer: InferRule,
    lowering: Strategy | tuple[Strategy, ...] = (),
    name: str = "",
    doc: str = "",
    schema: Schema | None = None,
    outputs: tuple[str, ...] = ("out",),
    mutates: tuple[int, ...] = (),
    variadic_outputs: bool = False,
    promotion: Promotion | None = None,
    samples: Samples | None = None,
    **options: Unpack[OpOptions],
) -> OpFunction:
    """Declare an op and return its public function.

    Name, doc and schema are those of `reference` unless given; `outputs`, `mutates` and `variadic_outputs` complete the
    schema (see `Schema`). Raises TypeError for an unknown option and ValueError for a name that is taken.
    """
    unknown = options.keys() - OpOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"op {name or reference.__name__}: unknown options {', '.join(sorted(unknown))}")
    schema = schema or Schema.of(reference, outputs=outputs, mutates=mutates, variadic_outputs=variadic_outputs)
    gradient = options.get("gradient")
    return OPS.add(
        OpDef(
            name=name or reference.__name__,
            names=options.get("names", _OWN_NAME),
            family=family,
            doc=doc or inspect.getdoc(reference) or "",
            schema=schema,
            infer=infer,
            reference=reference,
            gradient=None if gradient is None else GradientRule(gradient, schema),
            lowering=lowering if isinstance(lowering, tuple) else (lowering,),
            traits=options.get("traits", Trait.NONE),
            promotion=promotion,
            autocast=options.get("autocast", Autocast.INHERIT),
            spellings=options.get("spellings", ()),
            fuses=options.get("fuses"),
            batching=options.get("batching"),
            settings=options.get("settings", ()),
            casts=options.get("casts", False),
            expression=options.get("expression", ""),
            flops=options.get("flops"),
            index_range=options.get("index_range"),
            without_empty=options.get("without_empty"),
            public=options.get("public", True),
            tests=OpTests(
                samples=samples,
                errors=options.get("errors", ()),
                dtypes=options.get("dtypes", ()),
                tolerance=options.get("tolerance", Tolerance()),
                unique=options.get("unique"),
            ),
        )
    )


__all__ = [
    "OPS",
    "REQUIRED",
    "AsView",
    "Autocast",
    "CoreCall",
    "CoreInput",
    "CoreMember",
    "Decompose",
    "DeviceProgram",
    "ErrorSample",
    "HostConstant",
    "IndexRange",
    "Names",
    "OnDevice",
    "OnHost",
    "OpFunction",
    "OpOptions",
    "Output",
    "OutputRegion",
    "Params",
    "PartOfCall",
    "Promotion",
    "Regions",
    "Sample",
    "Samples",
    "Schema",
    "Specs",
    "Strategy",
    "Tolerance",
    "Trait",
    "declare",
    "depends",
    "first_tensor",
    "flat_in",
    "linear_in",
    "reads",
    "tensor_at",
    "tensors",
]
