"""The text of docs/coverage.md: a table per family of ops, with a column per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.ops.opdef import OpDef
from tools.coverage_columns import UNKNOWN, Column, dtype_names, listed_ops

_SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool_": "bool",
}  # fmt: skip
_HEAD = """# How ops run

Each op runs in one of these ways, the first that the backend has. `polyhal.explain("softmax", device)` explains one call in
full, `polyhal verify` tests a device of yours.

| letter | implementation |
|---|---|
| V | none: the result is a view of the input's memory |
| N | a native kernel of the backend, for the whole op |
| C | members of the contract: arithmetic on contiguous tensors, fill, copy, upload |
| D | the op's decomposition into other ops, which run in these ways |
| H | NumPy on the host, with the data downloaded and uploaded |
| – | not supported: the device does not store the dtype, or the dtypes that go with it |
| ! | wrong results, by the conformance kit |
| ? | unknown: the device has not been available since the op was added or changed |

The page is about contiguous tensors. Several letters: it depends on shapes or parameters. A cell applies to all
dtypes of its op, except for dtypes that follow by name.

`make generate` writes this page, from the available devices and the files in `data/coverage` for the others. To update
or add a device:

    python -m tools.coverage docs/coverage.md --device opencl:pocl

"""


def render(columns: Sequence[Column]) -> str:
    """Render the page, with the columns in the order given."""
    out = [_HEAD, "| column | device | driver | date |\n|---|---|---|---|\n"]
    out += [f"| {c.label} | {c.device} | {c.driver} | {c.date} |\n" for c in columns]
    families: dict[str, list[OpDef]] = {}
    for op in listed_ops():
        families.setdefault(op.family, []).append(op)
    for family, ops in sorted(families.items()):
        out.append(f"\n## {family.capitalize()}\n\n")
        out.append("| op | dtypes | " + " | ".join(c.label for c in columns) + " |\n")
        out.append("|---" * (len(columns) + 2) + "|\n")
        for op in ops:
            cells = (_cell(c.cells.get(op.name), op) for c in columns)
            out.append(f"| `{op.name}` | {_kinds(op.tests.dtypes)} | " + " | ".join(cells) + " |\n")
    return "".join(out)


def _kinds(have: tuple[DType, ...]) -> str:
    """Return a short description of a set of dtypes."""
    if not have:
        return "any"
    if set(have) == set(dtypes.ALL):
        return "all"
    kinds = {"float": "floats", "int": "ints", "uint": "uints", "bool": "bool"}
    out = []
    for kind, plural in kinds.items():
        every = [d for d in dtypes.ALL if d.kind == kind]
        mine = [d for d in every if d in have]
        if mine:
            out.append(plural if mine == every else " ".join(_SHORT[d.name] for d in mine))
    return ", ".join(out)


def _cell(row: Mapping[str, str] | None, op: OpDef) -> str:
    """Return the most frequent letters, then the others with their dtypes."""
    if row is None:
        return UNKNOWN
    groups: dict[str, list[str]] = {}
    for dtype in dtype_names(op):
        groups.setdefault(row.get(dtype, UNKNOWN), []).append(_SHORT.get(dtype, dtype))
    most = max(groups, key=lambda k: len(groups[k]))
    rest = (f"{text} {' '.join(names)}" for text, names in groups.items() if text != most)
    return "; ".join([most, *rest])
