"""Signatures of shaders, parsed from rendered text, and arguments bound to them by name."""

from __future__ import annotations

import pytest

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.launching.kernel_arguments import Constant, KernelArgumentError, Number
from polyhal.backends.common.launching.launch import (
    Arguments,
    LocalMemory,
    Scalar,
    Strided,
    Tensor,
    Workspace,
)
from polyhal.backends.wgpu.arguments import Offset, bind
from polyhal.backends.wgpu.shader import environment
from polyhal.backends.wgpu.signature import binding_access, parameter_bytes, read_signature

SHADERS = [name for name in SourceFolder("polyhal.shaders.wgsl").names() if name.endswith(".wgsl")]
TEXT = """
@group(0) @binding(1) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(0) var<storage, read> x: array<f32>;
struct Other { n: u32 }
struct Parameters { o_x: u32, o_sums: u32,
    rows: u32, step: i32, seed_low: u32, seed_high: u32, eps: f32, }
"""
SIGNATURE = read_signature("family/kernel", TEXT)


def arguments(**changed: object) -> Arguments:
    args: dict[str, object] = {
        "eps": 1,
        "x": Tensor(3),
        "sums": Workspace(4),
        "rows": 7,
        "step": -1,
        "seed": Scalar(2),
    }
    args |= changed
    return {name: value for name, value in args.items() if value is not None}  # type: ignore[misc]


def test_buffers_are_ordered_by_binding_before_members_of_the_struct() -> None:
    assert [(p.name, p.type or p.kind) for p in SIGNATURE.parameters] == [
        ("x", "global"),
        ("sums", "global"),
        ("o_x", "uint"),
        ("o_sums", "uint"),
        ("rows", "uint"),
        ("step", "int"),
        ("seed", "ulong"),
        ("eps", "float"),
    ]
    assert binding_access(TEXT) == {0: "read", 1: "read_write"}
    assert parameter_bytes(SIGNATURE) == 28


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("struct Parameters { v: vec2<u32> }", "v of Parameters has the type vec2<u32>; expected u32, i32 or f32"),
        ("@group(0) @binding(1) var<storage, read> x: array<f32>;", r"bindings of a are \[\(1, 'x'\)\]; expected 0, 1"),
    ],
)
def test_an_unreadable_shader_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_signature("a", text)


@pytest.mark.parametrize("name", SHADERS)
def test_every_offset_in_a_shader_belongs_to_a_buffer(name: str) -> None:
    signature = read_signature(name.removesuffix(".wgsl"), environment().get_template(name).render())
    buffers = {p.name for p in signature.parameters if p.kind == "global"}
    assert len(signature.names) == len(signature.parameters)
    for p in signature.parameters:
        if p.kind == "scalar" and p.name.startswith("o_"):
            assert p.name.removeprefix("o_") in buffers


def test_arguments_are_ordered_as_in_the_shader() -> None:
    bound = bind(SIGNATURE, arguments())
    assert bound.buffers == (Tensor(3), Workspace(4))
    assert bound.members == (
        Offset(0),
        Constant(0, "uint"),
        Constant(7, "uint"),
        Constant(-1, "int"),
        Number(2, "ulong"),
        Constant(1.0, "float"),
    )


def test_workspace_has_offset_0_unless_an_offset_is_passed() -> None:
    assert bind(SIGNATURE, arguments(o_sums=5)).members[1] == Constant(5, "uint")


def test_strided_memory_sets_its_strides() -> None:
    signature = read_signature("f", TEXT.replace("rows", "x_row"))
    plain = bind(signature, arguments(rows=None, x_row=7))
    assert bind(signature, arguments(rows=None, x=Strided(Tensor(3), {"row": 7}))) == plain


def test_unsigned_members_accept_negative_strides() -> None:
    assert bind(SIGNATURE, arguments(rows=-5, seed=-1)).members[2::2] == (Constant(-5, "uint"), Constant(-1, "ulong"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"eps": None}, "'eps' is missing; expected a number of the type float"),
        ({"x": None}, "'x' is missing; expected memory"),
        ({"row": 1}, "'row' is not a parameter of the kernel; expected rows"),
        ({"o_x": 1}, "'o_x' is not a parameter of the kernel; expected "),
        ({"x": 3}, "'x' is 3; expected a tensor or workspace"),
        ({"x": LocalMemory(4)}, "'x' is .*; expected a tensor or workspace"),
        ({"rows": 1.5}, "'rows' is 1.5; expected a number of the type uint"),
        ({"step": 1 << 31}, "'step' is 2147483648; expected a number of the type int"),
        ({"rows": Tensor(1)}, "'rows' is .*; expected a number of the type uint"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(changed: dict[str, object], words: str) -> None:
    with pytest.raises(
        KernelArgumentError,
        match=rf"^\[family_kernel\] the argument {words}.*; see the kernel's parameters in family/kernel.wgsl",
    ):
        bind(SIGNATURE, arguments(**changed))


def test_a_tensor_needs_a_member_for_its_offset() -> None:
    with pytest.raises(KernelArgumentError, match="'x' is a tensor; expected a member o_x: u32 of Parameters"):
        bind(read_signature("f", TEXT.replace("o_x: u32,", "")), arguments())
