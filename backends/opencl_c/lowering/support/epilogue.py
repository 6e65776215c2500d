"""Epilogues of matrix products: generated code for the macros of lib/epilogue.h, and its kernel arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.backends.common.codegen.statements import RegisterValue, cast, evaluate
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Addend, PairedSum, Product
from polyhal.backends.opencl_c.dialect import type_name
from polyhal.backends.opencl_c.lowering.support.statement_text import StatementText

_PARAMETERS = "EPILOGUE_PARAMETERS"
_STEPS = "EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left)"
_DECLARE = "EPILOGUE_DECLARE"
_FETCH = "EPILOGUE_FETCH(slot, row, column, i0, i1, i2)"
_PREFETCH = "EPILOGUE_PREFETCH(row, column, columns, i0, i1, i2)"
_TRANSPOSE = "EPILOGUE_TRANSPOSE(slot)"
_FINISH = "EPILOGUE_FINISH(sum, slot, g)"
_NONE: Definitions = {
    "EPILOGUE": 0,
    "EPILOGUE_TENSORS": 0,
    "EPILOGUE_NUMBERS": 0,
    "UNPACK_EPILOGUE": "",
    **dict.fromkeys((_PARAMETERS, _STEPS, _DECLARE, _PREFETCH, _FETCH, _TRANSPOSE, _FINISH), ""),
}
_GROUP_OF_COLUMNS = 8
"""Adjacent 16-bit elements that are loaded at once."""


@dataclass(slots=True)
class _EpilogueText(StatementText):
    """The epilogue's declarations, loads and statements. Its struct is `epilogue`."""

    declared: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    prefetches: list[str] = field(default_factory=list)
    fetches: list[tuple[str, str, str, str]] = field(default_factory=list)
    """For every tensor: access to adjacent elements (see lib/fragment_store.h), dtype, name, and offset of its row."""


def epilogue(p: Product) -> tuple[dict[str, str | int | bool], dict[str, Argument]]:
    """Return the definitions and kernel arguments for the bias and the epilogue of a product."""
    merged = p.merged_epilogue()
    if merged is None:
        return dict(_NONE), {}
    text = _EpilogueText()
    real = type_name(p.sum_class)
    text.compute.append(f"const VEC({real}) e0 = sum;")
    values = [RegisterValue("e0", p.sum_dtype)]
    for number, operand in enumerate(merged.operands, 1):
        name = f"e{number}"
        if isinstance(operand, Addend):
            _load(text, p, name, operand)
            values.append(RegisterValue(name, operand.dtype))
        elif isinstance(operand, PairedSum):
            text.declare(name, p.sum_dtype, "other")
            values.append(RegisterValue(name, p.sum_dtype))
        else:
            text.declare(name, p.sum_dtype, text.parameter(f"{name}_value", operand, p.sum_dtype))
            values.append(RegisterValue(name, p.sum_dtype))
    last = {len(values) + len(merged.steps) - 1}
    result = cast(text, evaluate(text, merged.steps, values, stored=last)[-1], p.sum_dtype)
    text.compute.append(f"sum = {result};")
    definitions: dict[str, str | int | bool] = {
        "EPILOGUE": 1,
        "EPILOGUE_TENSORS": len(text.fetches),
        "EPILOGUE_NUMBERS": len(text.numbers),
        "EPILOGUE_MEMBERS": text.members(),
        "UNPACK_EPILOGUE": text.unpack("epilogue"),
        _PARAMETERS: " ".join([*text.declared, *(["const EpilogueNumbers epilogue,"] if text.numbers else [])]),
        _STEPS: "\n".join([*text.loads, *text.compute]),
        _DECLARE: " ".join(f"DECLARE_{access}({dtype}, {name})" for access, dtype, name, _ in text.fetches),
        _PREFETCH: " ".join(text.prefetches),
        _FETCH: "\n".join(
            f"FETCH_{access}({dtype}, {name}, slot, {name}_memory + ({line}), row, column)"
            for access, dtype, name, line in text.fetches
        ),
        _TRANSPOSE: " ".join(f"TRANSPOSE_{access}({name}, slot)" for access, _, name, _ in text.fetches),
        _FINISH: "\n".join(
            [f"USE_{access}({d}, {name}, slot, g)" for access, d, name, _ in text.fetches] + text.compute
        ),
        **dict.fromkeys(sorted(text.dialect.headers), 1),
    }
    return definitions, text.args


def aligned(p: Product, count: int) -> bool:
    """Return whether `count` adjacent elements of the result and of all epilogue tensors are aligned vectors."""
    merged = p.merged_epilogue()
    tensors = [o for o in merged.operands if isinstance(o, Addend)] if merged else []
    return (
        p.n % count == 0
        and p.out.aligned
        and all(o.matrix.column == 0 or _aligned_vectors(p, o, count) for o in tensors)
    )


def _aligned_vectors(p: Product, operand: Addend, count: int) -> bool:
    m = operand.matrix
    return m.column == 1 and m.aligned and all(stride % count == 0 for stride in (p.n, m.row, *m.batch))


def _load(text: _EpilogueText, p: Product, name: str, operand: Addend) -> None:
    m, dtype = operand.matrix, operand.dtype.name
    text.declared.append(f"__global const STORAGE({dtype}) *{name}_memory, const ulong {name}_memory_offset,")
    text.args[f"{name}_memory"] = Tensor(m.place)
    strides = {"row": m.row, "column": m.column, "batch0": m.batch[0], "batch1": m.batch[1], "batch2": m.batch[2]}
    for axis, stride in strides.items():
        text.constant(f"{name}_{axis}", "long", stride)
    line = " + ".join(
        [
            f"{name}_memory_offset",
            f"(long)(row) * {name}_row",
            f"(long)(i0) * {name}_batch0",
            f"(long)(i1) * {name}_batch1",
            f"(long)(i2) * {name}_batch2",
        ]
    )
    access = "BROADCAST" if m.column == 0 else "CONTIGUOUS" if m.column == 1 else "STRIDED"
    place = f"{name}_memory + ({line} + (long)(column) * {name}_column)"
    text.loads.append(f"EPILOGUE_LOAD_{access}({dtype}, {name}, {place}, {name}_column, left)")
    if operand.dtype.itemsize == 2 and _aligned_vectors(p, operand, _GROUP_OF_COLUMNS):
        access = "WHOLE"
    elif _aligned_vectors(p, operand, 2):
        access = "PAIR"
    text.fetches.append((access, dtype, name, line))
    if m.column == 1 and m.row:
        text.prefetches.append(f"PREFETCH_LINE({dtype}, {name}_memory + ({line}), row, column, columns)")
