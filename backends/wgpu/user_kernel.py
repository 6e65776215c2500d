"""User kernels in WGSL: the user's entry point, with generated declarations for the launch.

Authors write `main` and use tensors and `parameters.NAME` without declaring them. Three parts of the text are changed;
line numbers stay, for the compiler's messages:

- Declarations of buffers, of the struct `parameters` and of the types `T` and `x_t` follow after the last line.
- A tensor may start anywhere in its buffer: an index `x[i]` becomes `x[parameters.o_x + u32(i)]`.
- A dispatch has two axes of limited length: `main` becomes a function that a generated entry point calls with the ids
  of the author's grid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Scalar, Tensor
from polyhal.backends.common.launching.user_kernels import sizes, without_comments
from polyhal.backends.wgpu.as_written import as_written
from polyhal.backends.wgpu.parameter_ring import MAX_PARAMETER_WORDS
from polyhal.backends.wgpu.runtime import NOTHING_SHARED
from polyhal.backends.wgpu.shader import ComputePipeline, build_error
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch, UserKernel

if TYPE_CHECKING:
    from polyhal.backends.wgpu.runtime import Runtime
    from polyhal.hal.ops.schema import Params

_TYPES = {"float32": "f32", "float16": "f16", "int32": "i32", "uint32": "u32"}
_ENTRY = re.compile(
    r"@compute\s*@workgroup_size\s*\(([^)]*)\)\s*fn\s+main\s*\(|"
    r"@workgroup_size\s*\(([^)]*)\)\s*@compute\s*fn\s+main\s*\("
)
_BINDING = re.compile(r"@(?:group|binding)\s*\([^)]*\)")
_PARAMETER = re.compile(r"\s*@builtin\s*\(\s*(\w+)\s*\)\s*(\w+)\s*:\s*([\w<>]+)\s*")
_BODY = "polyhal_main"
_BUILTINS = {
    "global_invocation_id": "polyhal_group * vec3<u32>({size}) + polyhal_local",
    "workgroup_id": "polyhal_group",
    "num_workgroups": "vec3<u32>(parameters.polyhal_x, parameters.polyhal_y, parameters.polyhal_z)",
    "local_invocation_id": "polyhal_local",
    "local_invocation_index": "polyhal_index",
}
_GENERATED = """
@compute @workgroup_size({size}) fn main(
    @builtin(workgroup_id) polyhal_w: vec3<u32>, @builtin(num_workgroups) polyhal_n: vec3<u32>,
    @builtin(local_invocation_id) polyhal_local: vec3<u32>, @builtin(local_invocation_index) polyhal_index: u32{builtins}
) {{
    let polyhal_flat = polyhal_w.y * polyhal_n.x + polyhal_w.x;
    let polyhal_plane = parameters.polyhal_x * parameters.polyhal_y;
    if (polyhal_flat >= polyhal_plane * parameters.polyhal_z) {{ return; }}
    let polyhal_group = vec3<u32>(
        polyhal_flat % parameters.polyhal_x, polyhal_flat / parameters.polyhal_x % parameters.polyhal_y,
        polyhal_flat / polyhal_plane);
    {body}({arguments});
}}
"""


class _EntryPoint(NamedTuple):
    """The author's `main` as a plain function, and the entry point that calls it."""

    text: str
    size: tuple[int, ...]
    generated: str


def entry_point(code: str) -> _EntryPoint:
    """Convert `main` to a function of its builtin values. Raises ValueError if `main` is missing or cannot be parsed."""
    head = _ENTRY.search(code)
    if head is None:
        raise ValueError("the source has no entry point `@compute @workgroup_size(64) fn main(...)`")
    written = (head[1] or head[2]).strip().rstrip(",")
    try:
        size = tuple(int(n.strip().rstrip("iu")) for n in written.split(","))
    except ValueError:
        raise ValueError(f"@workgroup_size({written}) is not a list of literal numbers") from None
    end = _closing(code, head.end() - 1)
    parameters = [p for p in re.split(r",(?![^<(]*[>)])", code[head.end() : end]) if p.strip()]
    read = [_PARAMETER.fullmatch(p) for p in parameters]
    if not all(read):
        raise ValueError("each parameter of `main` must be like `@builtin(global_invocation_id) id: vec3<u32>`")
    found = [(m[1], m[2], m[3]) for m in read if m is not None]
    lines = "\n" * code.count("\n", head.start(), end)
    text = (
        f"{code[: head.start()]}fn {_BODY}({', '.join(f'{name}: {kind}' for _, name, kind in found)}{lines}{code[end:]}"
    )
    others = [(builtin, name, kind) for builtin, name, kind in found if builtin not in _BUILTINS]
    shape = ", ".join(map(str, (*size, *[1] * (3 - len(size)))))
    generated = _GENERATED.format(
        size=shape,
        builtins="".join(f", @builtin({b}) polyhal_{name}: {kind}" for b, name, kind in others),
        body=_BODY,
        arguments=", ".join(_BUILTINS.get(b, f"polyhal_{name}").format(size=shape) for b, name, _ in found),
    )
    return _EntryPoint(text, size, generated)


def add_offsets(code: str, tensors: Iterable[str]) -> str:
    """Add the tensor's offset to every index of a tensor. Raises ValueError if a `]` is missing."""
    index = re.compile(rf"(?<![.\w])({'|'.join(tensors)})\s*\[")
    pieces: list[str] = []
    at = 0
    while (found := index.search(code, at)) is not None:
        end = _closing(code, found.end() - 1)
        inner = add_offsets(code[found.end() : end], tensors)
        pieces += [code[at : found.start()], f"{found[1]}[parameters.o_{found[1]} + u32({inner})]"]
        at = end + 1
    return "".join([*pieces, code[at:]])


def _closing(code: str, opening: int) -> int:
    """Return the position of the bracket that closes the one at `opening`. Raises ValueError."""
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] in "([") - (code[at] in ")]")
        if not depth:
            return at
    raise ValueError(f"a {code[opening]!r} is never closed")


def compile_kernel(
    runtime: Runtime,
    kernel: UserKernel,
    inputs: tuple[InputSpec | None, ...],
    outputs: tuple[Spec, ...],
    params: Params,
    grid: tuple[int, ...],
    group: tuple[int, ...],
) -> Launch | Declined:
    """Return a launch, or the reason why there is none. See `SupportsUserKernels`; the source sets the workgroup size."""
    source = kernel.sources.get("wgsl")
    if source is None:
        return Declined(f"{kernel.name} has no WGSL source")
    named = dict(zip((*kernel.inputs, *kernel.outputs), (*inputs, *outputs), strict=True))
    specs = {name: s for name, s in named.items() if isinstance(s, Spec)}
    for name, spec in specs.items():
        if spec.dtype.name not in _TYPES or (spec.dtype.name == "float16" and not runtime.features.float16):
            return Declined(f"{name} is {spec.dtype.name}, which WGSL does not support on this device")
    code = without_comments(source)
    try:
        entry, text = _translate(code, specs)
    except ValueError as error:
        raise KernelBuildError(message(kernel.name, str(error), device=runtime.info.name)) from None
    groups = [ceil_div(n, s) for n, s in zip(grid, (*entry.size, 1, 1), strict=False)]
    groups += [1] * (3 - len(groups))
    args: dict[str, Argument] = {}
    members = [f"o_{name}: u32" for name in specs]
    for index, (name, given) in enumerate(named.items()):
        if isinstance(given, Spec):
            args[name] = Tensor(index)
        elif given is not None:
            args[name] = Scalar(index)
            members.append(f"{name}: {'f32' if given.dtype.kind == 'float' else 'i32'}")
    used = set(re.findall(r"\bparameters\.(\w+)", code))
    constants = {k: v for k, v in sizes(specs).items() if k in used and k not in args}
    constants |= {f"polyhal_{axis}": n for axis, n in zip("xyz", groups, strict=True)}
    members += [f"{name}: u32" for name in constants]
    if len(members) > MAX_PARAMETER_WORDS:
        return Declined(f"{kernel.name} has {len(members)} parameter words; this device supports {MAX_PARAMETER_WORDS}")
    immediates = runtime.features.immediates >= 4 * len(members)
    rest = _declarations(specs, kernel.outputs, members, params, immediates) + entry.generated

    def build(
        access: str, shared: Mapping[str, str] = NOTHING_SHARED
    ) -> ComputePipeline:  # the source is not a template
        start = "enable f16; " if any(s.dtype.name == "float16" for s in specs.values()) else ""
        full = f"{start}{text}\n{rest.replace('ACCESS', access)}"
        fix = "mend the line that the log names"
        try:
            return runtime.pipelines.compiled(kernel.name, full, fix)
        except KernelBuildError as error:
            log = as_written(error.log, kernel.name, f"{start}{text}".split("\n"), source.split("\n"))
            raise build_error(kernel.name, source, log, fix, runtime.info.name) from error

    return runtime.dispatch(build, {**args, **constants}, runtime.spread(math.prod(groups)))


def _translate(code: str, tensors: Iterable[str]) -> tuple[_EntryPoint, str]:
    """Return the entry point of a source, and the text with the tensors' offsets added. Raises ValueError."""
    if (declared := _BINDING.search(code)) is not None:
        expected = "no bindings: tensors and parameters are declared by name"
        raise ValueError(f"the source declares {declared[0]}; expected {expected}")
    entry = entry_point(code)
    return entry, add_offsets(entry.text, tensors)


def _declarations(
    specs: Mapping[str, Spec],
    outputs: tuple[str, ...],
    members: Iterable[str],
    params: Params,
    immediates: bool,
) -> str:
    """Return the declarations of types, constants, buffers and parameters.

    ACCESS is a placeholder for the access mode of inputs.
    """
    types = {name: _TYPES[s.dtype.name] for name, s in specs.items()}
    lines = [f"alias T = {next(iter(types.values()))};", *(f"alias {name}_t = {t};" for name, t in types.items())]
    lines += [f"const {name} = {_literal(value)};" for name, value in params.items()]
    for binding, (name, kind) in enumerate(types.items()):
        access = "read_write" if name in outputs else "ACCESS"
        lines.append(f"@group(0) @binding({binding}) var<storage, {access}> {name}: array<{kind}>;")
    lines.append(f"struct Parameters {{ {', '.join(members)} }}")
    place = "var<immediate>" if immediates else "@group(1) @binding(0) var<uniform>"
    return "\n".join([*lines, f"{place} parameters: Parameters;"])


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
