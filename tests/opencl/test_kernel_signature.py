"""Kernel signatures parsed from source, and checks of arguments against them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyhal.backends.common.codegen.constant_expression import evaluate
from polyhal.backends.common.codegen.templating import Definitions, SourceFolder
from polyhal.backends.common.launching.kernel_arguments import Constant, KernelArgumentError, Number, Struct, bind
from polyhal.backends.common.launching.kernel_signature import KernelSignature, KernelSignatures
from polyhal.backends.common.launching.launch import (
    Arguments,
    LocalMemory,
    Scalar,
    Strided,
    Table,
    Tensor,
    Workspace,
)

FILES = SourceFolder("polyhal.shaders.opencl")


def read(text: str, kernel: str = "f", definitions: Definitions | None = None, **headers: str) -> KernelSignature:
    files = {"f.cl": text, **{f"{name}.h": header for name, header in headers.items()}}
    return KernelSignatures(files.__getitem__).of("f.cl", kernel, definitions or {})


def names(text: str, definitions: Definitions | None = None, **headers: str) -> list[str]:
    return [p.name for p in read(text, "f", definitions, **headers).parameters]


def kinds(text: str) -> list[str]:
    return [p.type or p.kind for p in read(text).parameters]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("!0 == 1", 1),
        ("1 || 0 && 0", 1),
        ("8 >> 2 << 1", 4),
        ("0x10u", 16),
        ("NAME", 0),
        ("2 > 1 ? 5 : 6", 5),
        ("-3 % 2 != 0", 1),
        ("~0 & 6", 6),
        ("__has_builtin ( f ) || 0", 0),
    ],
)
def test_expressions_of_conditionals(text: str, value: int) -> None:
    assert evaluate(tuple(re.findall(r"\w+|\|\||&&|<<|>>|[=!]=|\S", text))) == value


@pytest.mark.parametrize("text", ["1 +", "(1", "1 2", ""])
def test_an_unreadable_expression_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expression"):
        evaluate(tuple(text.replace("(", "( ").split()))


def test_every_kind_of_parameter() -> None:
    text = """
typedef struct {
    long step[3];
    uint rows, columns;
} Geometry;
__kernel void f(__global const float *restrict x, const ulong x_offset, volatile __global int *n, __local float *shared,
                __constant uint *table, const unsigned int count, float eps, const Geometry geometry) {}
"""
    assert kinds(text) == ["global", "ulong", "global", "local", "global", "uint", "float", "struct"]
    (*_, geometry) = read(text).parameters
    assert [(m.name, m.type, m.length) for m in geometry.members] == [
        ("step", "long", 3),
        ("rows", "uint", 0),
        ("columns", "uint", 0),
    ]
    assert read(text).structs["geometry"].itemsize == 32


def test_types_resolve_through_typedefs_and_macros() -> None:
    """The style of CUDA's kernels."""
    text = """
typedef long long int64;
typedef unsigned int uint32;
typedef float float32;
typedef double float64;
typedef REAL real;
#define COUNT 3
typedef struct {
    int64 steps[2 * COUNT], first;
    uint32 sizes[COUNT];
} Table;
KERNEL f(const __grid_constant__ Table table, const real scale, const uint32 count, const REAL *values) {}
"""
    signature = KernelSignatures({"f.cu": text}.__getitem__, "KERNEL").of("f.cu", "f", {"REAL": "float64"})
    assert [p.type or p.kind for p in signature.parameters] == ["struct", "double", "uint", "global"]
    assert [(m.name, m.type, m.length) for m in signature.parameters[0].members] == [
        ("steps", "long", 6),
        ("first", "long", 0),
        ("sizes", "uint", 3),
    ]


def test_macros_expand_as_in_c() -> None:
    text = """
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STORAGE_half ushort
#define STORAGE(D) JOIN(STORAGE_, D)
#define OPERAND(D, x) __global STORAGE(D) *x, const ulong x##_offset
#define STRIDES(x) const long x##_row, \\
                   const long x##_column
#define SELF SELF
#define EMPTY
__kernel void f(OPERAND(half, q), EMPTY STRIDES(q), const int SELF) {}
"""
    assert names(text) == ["q", "q_offset", "q_row", "q_column", "SELF"]
    assert kinds(text) == ["global", "ulong", "long", "long", "int"]


def test_a_macro_may_be_a_whole_list_and_name_another_that_takes_arguments() -> None:
    text = "#define LIST(T) const T a, const T b\n#define USE LIST\n__kernel void f(USE(float), const int c) {}"
    assert names(text) == ["a", "b", "c"]


def test_conditionals_choose_parameters() -> None:
    text = """
#ifndef MODE
#define MODE 1
#endif
__kernel void f(
#if MODE == 1 && !defined(OTHER)
    const int one,
#elif MODE == 2
#if 1
    const int two,
#else
    const int never,
#endif
#else
    const int other,
#endif
    const int last) {}
"""
    assert names(text) == ["one", "last"]
    assert names(text, {"MODE": 2}) == ["two", "last"]
    assert names(text, {"MODE": 3}) == ["other", "last"]
    assert names(text, {"MODE": 1, "OTHER": True}) == ["other", "last"]


def test_nested_conditionals_within_an_inactive_branch_stay_inactive() -> None:
    inner = "#if 1\n#define T float\n#elif 1\n#define T int\n#else\n#define T long\n#endif\n"
    text = f"#if 0\n{inner}#else\n#define T uint\n#endif\n"
    assert kinds(f"{text}__kernel void f(const T x) {{}}") == ["uint"]


def test_headers_are_read_where_they_are_included() -> None:
    text = '#define D 2\n#include "h.h"\n#undef D\n__kernel void f(LIST) {}'
    assert names(text, h="#if D == 2\n#define LIST int a, int b\n#endif") == ["a", "b"]


def test_comments_strings_and_attributes_are_no_parameters() -> None:
    text = """
#define G 64 // __kernel void f(int wrong) {}
/* __kernel void f(int wrong) {} */
__kernel __attribute__((reqd_work_group_size(G, 1, 1))) void f(const int a /* , int b */) { asm("// }"); }
__kernel void g(int b) {}
"""
    assert names(text) == ["a"]
    assert [p.name for p in read(text, "g").parameters] == ["b"]


def test_definitions_may_be_macros_with_parameters_and_lists() -> None:
    text = "__kernel void f(PARAMETERS, TWICE(x)) {}"
    assert names(text, {"PARAMETERS": "const int a,\nconst int b", "TWICE(n)": "int n##0, int n##1"}) == [
        "a",
        "b",
        "x0",
        "x1",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("__kernel void g(int x) {}", "no kernel f"),
        ("__kernel void f(size_t x) {}", "'size_t' of the parameter x"),
        ("typedef struct { bool b; } S;\n__kernel void f(S s) {}", "member 'bool b' of the struct S"),
        ("typedef struct { uint n; long m; } S;\n__kernel void f(S s) {}", "8 bytes must come first"),
        ("#define P(a, b) int a\n__kernel void f(P(x)) {}", "P has 2 parameters, but the call has 1"),
        ("__kernel void f(\n#if 0\nint a) {\n#else\nint b) {\n#endif\n}", "must end outside of #if"),
    ],
)
def test_what_cannot_be_read_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(text)


def test_every_kernel_of_the_package_has_a_readable_signature() -> None:
    signatures = KernelSignatures(FILES.read)
    for file in FILES.names():
        if file.endswith(".cl"):
            declared = list(signatures.kernels(file, {}))
            assert declared, file
            for signature in declared:
                assert signature.parameters, signature.kernel
                assert signatures.of(file, signature.kernel, {}) == signature


def test_the_name_of_a_kernel_occurs_in_one_file() -> None:
    """`explain` and the profiler print it, so that one search leads to the source."""
    signatures, texts = KernelSignatures(FILES.read), {f: FILES.shipped(f) for f in FILES.names() if f.endswith(".cl")}
    for file in texts:
        for signature in signatures.kernels(file, {}):
            name = re.compile(rf"\b{signature.kernel}\b")
            assert [f for f, text in texts.items() if name.search(text)] == [file]


KERNEL = """
typedef struct {
    long a_batch[3];
    double scale;
    uint rows;
} Geometry;
__kernel void f(__global const float *a, const ulong a_offset, __global float *sums, const long a_row, const int count,
                const float eps, __local float *shared, const Geometry geometry) {}
"""


def arguments(**changed: object) -> Arguments:
    args: dict[str, object] = {
        "geometry": None,
        "eps": 1,
        "a": Tensor(0),
        "a_row": -5,
        "sums": Workspace(2),
        "count": Scalar(1),
        "shared": LocalMemory(64),
        "rows": 7,
        "a_batch": (1, 2, 3),
        "scale": 0.5,
    }
    args |= changed
    return {name: value for name, value in args.items() if value is not None}  # type: ignore[misc]


def test_arguments_come_into_the_order_of_the_kernel() -> None:
    *bound, struct = bind(read(KERNEL), arguments(), offsets=True)
    assert bound == [
        Tensor(0, read_only=True),
        Workspace(2),
        Constant(-5, "long"),
        Number(1, "int"),
        Constant(1.0, "float"),
        LocalMemory(64),
    ]
    assert isinstance(struct, Struct)
    (record,) = np.frombuffer(struct.data, read(KERNEL).structs["geometry"])
    assert (*record["a_batch"], record["scale"], record["rows"]) == (1, 2, 3, 0.5, 7)


def test_memory_is_read_only_if_its_elements_are_constants() -> None:
    kernel = (
        "__kernel void f(__global float *const a, const ulong a_offset, __constant float *b, const ulong b_offset) {}"
    )
    assert [p.read_only for p in read(kernel).parameters if p.kind == "global"] == [False, True]


def test_strided_memory_brings_its_strides() -> None:
    plain = bind(read(KERNEL), arguments(), offsets=True)
    strided = Strided(Tensor(0), {"row": -5, "batch": (1, 2, 3)})
    assert bind(read(KERNEL), arguments(a=strided, a_row=None, a_batch=None), offsets=True) == plain


def test_memory_that_is_no_tensor_begins_at_its_start() -> None:
    assert bind(read(KERNEL), arguments(a=Workspace(3)), offsets=True)[:2] == [Workspace(3), Constant(0, "ulong")]
    assert bind(read(KERNEL), arguments(a=Table((1,))), offsets=True)[:2] == [Table((1,)), Constant(0, "ulong")]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"count": None}, "'count' is missing; expected a number of the type int"),
        ({"rows": None}, "'rows' is missing; expected a number of the type uint"),
        ({"a": None}, "'a' is missing; expected memory"),
        ({"conut": 1, "count": 1}, "'conut' is not a parameter of the kernel; expected count"),
        ({"a": 3}, "'a' is 3; expected memory"),
        ({"shared": Workspace(2)}, "'shared' is .*; expected local memory"),
        ({"sums": LocalMemory(4)}, "'sums' is .*; expected memory"),
        ({"sums": Tensor(1)}, "'sums' is a tensor; expected a parameter ulong sums_offset after it"),
        ({"a_row": 1.5}, "'a_row' is 1.5; expected a number of the type long"),
        ({"rows": -1}, "'rows' is -1; expected a number of the type uint"),
        ({"count": 1 << 31}, "'count' is 2147483648; expected a number of the type int"),
        ({"eps": Tensor(0)}, "'eps' is .*; expected a number of the type float"),
        (
            {"rows": Scalar(1)},
            "'rows' changes between calls; expected a constant, or a parameter outside of the struct",
        ),
        ({"a_batch": (1, 2)}, r"'a_batch' is \(1, 2\); expected 3 numbers of the type long"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(changed: dict[str, object], words: str) -> None:
    with pytest.raises(KernelArgumentError, match=rf"^\[f\] the argument {words}; see the kernel's parameters in f.cl"):
        bind(read(KERNEL), arguments(**changed), offsets=True)
