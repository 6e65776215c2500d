"""Users' kernels in OpenCL C: text adapted to views, operands checked, built and bound.

A tensor may start anywhere in its buffer. The text is therefore changed: a parameter
`ulong x_offset` is inserted after each `__global T *x`, and the body begins with `x += x_offset;`. Line numbers stay
the same, for the compiler's messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.kernel_arguments import Bound, bind
from polyhal.backends.common.launching.kernel_signature import KernelSignature, KernelSignatures
from polyhal.backends.common.launching.launch import Argument, Scalar, Tensor
from polyhal.backends.common.launching.user_kernels import sizes, without_comments
from polyhal.hal.errors import KernelBuildError, UnsupportedDTypeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch, UserKernel

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

C_TYPES = {
    "float32": "float", "float64": "double", "float16": "half", "bfloat16": "ushort", "bool_": "uchar",
    "int8": "char", "int16": "short", "int32": "int", "int64": "long",
    "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong",
}  # fmt: skip
_UNSIGNED = {"unsigned char": "uchar", "unsigned short": "ushort", "unsigned int": "uint", "unsigned": "uint"}
_QUALIFIERS = re.compile(r"\b(__global|global|__constant|constant|const|volatile|restrict|__restrict)\b")
_VECTOR = re.compile(r"(?<=[a-z])(2|3|4|8|16)$")
_GROUPS = {1: (64,), 2: (8, 8), 3: (4, 4, 4)}


class PatchedSource(NamedTuple):
    """The text with offsets, and the element type of each pointer to global memory, as written."""

    text: str
    pointers: Mapping[str, str]


def patch_offsets(name: str, source: str) -> PatchedSource:
    """Add offsets to the kernel `name`. Raises ValueError if the text has no such kernel."""
    code = without_comments(source)
    head = re.search(rf"\b(?:__kernel|kernel)\b[^;{{}}]*?\b{name}\s*\(", code)
    body = code.find("{", head.end()) if head else -1
    if head is None or body < 0:
        raise ValueError(f"the source has no kernel `__kernel void {name}(...) {{`")
    end = code.rindex(")", head.end(), body)
    pieces: list[str] = []
    pointers: dict[str, str] = {}
    at = head.end()
    for parameter in code[head.end() : end].split(","):
        stop = at + len(parameter)
        pieces.append(source[at:stop])
        words = re.findall(r"\w+", parameter)
        if "*" in parameter and not {"__local", "local"} & set(words):
            pointers[words[-1]] = " ".join(_QUALIFIERS.sub("", parameter.partition("*")[0]).split())
            pieces[-1] += f", ulong {words[-1]}_offset"
        at = stop + 1
    starts = " ".join(f"{p} += {p}_offset;" for p in pointers)
    text = f"{source[: head.end()]}{','.join(pieces)}{source[end : body + 1]} {starts}{source[body + 1 :]}"
    return PatchedSource(text, pointers)


MakeLaunch = Callable[[Sequence[Bound], tuple[int, ...], tuple[int, ...]], Launch]
"""Function of a built kernel: parameters, work-items and group, as in `Runtime.launch`, to a launch."""


class BuildsUserKernels(Protocol):
    """A driver's part: building a kernel from text."""

    def build_user_kernel(
        self, name: str, file: str, text: str, options: list[str], signature: KernelSignature
    ) -> MakeLaunch:
        """Return the launches of the kernel `name`. Raises KernelBuildError, and BackendError beyond the device's limits."""


class _Built(NamedTuple):
    """A kernel and its parameters."""

    launch: MakeLaunch
    signature: KernelSignature


class UserKernelCompiler:
    """Compiles users' kernels for one device, once per text, dtypes and constants."""

    def __init__(self, builder: BuildsUserKernels, device: str) -> None:
        """`device` is the device's name, for errors."""
        self._builder = builder
        self._device = device
        self._compiled: dict[tuple[Any, ...], _Built] = {}

    def compile(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Params,
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Return a launch, or the reason for declining. See `SupportsUserKernels`."""
        source = kernel.sources.get("opencl")
        if source is None:
            return Declined(f"{kernel.name} has no source in OpenCL C")
        named = dict(zip((*kernel.inputs, *kernel.outputs), (*inputs, *outputs), strict=True))
        specs = {name: s for name, s in named.items() if isinstance(s, Spec)}
        definitions = {f"{name}_t": C_TYPES[s.dtype.name] for name, s in specs.items()}
        definitions = {
            "T": next(iter(definitions.values())),
            **definitions,
            **{k: _literal(v) for k, v in params.items()},
        }
        local = group or _GROUPS[len(grid)]
        if len(local) != len(grid):
            raise ValueError(f"{kernel.name}: the group has {len(local)} axes, and the grid {len(grid)}")
        launch, signature = self._build(kernel.name, source, definitions, specs)
        args: dict[str, Argument] = {}
        for index, (name, spec) in enumerate(named.items()):
            if spec is not None:
                args[name] = Tensor(index) if isinstance(spec, Spec) else Scalar(index)
        args |= {k: v for k, v in sizes(specs).items() if k in signature.names and k not in args}
        parameters = bind(signature, args, offsets=True)
        rounded = tuple(round_up(n, g) for n, g in zip(grid, local, strict=True))
        return launch(parameters, rounded, local)

    def _build(self, name: str, source: str, definitions: Mapping[str, str], specs: Mapping[str, Spec]) -> _Built:
        key = (name, source, tuple(definitions.items()))
        known = self._compiled.get(key)
        if known is None:
            file, device = f"{name}.cl", self._device
            try:
                patched = patch_offsets(name, source)
                _check_types(name, patched.pointers, definitions, specs, device)
                read = partial(_only_file, file, patched.text)
                signature = KernelSignatures(read, "__kernel|kernel").of(file, name, definitions)
            except ValueError as error:
                raise KernelBuildError(message(name, str(error), device=device)) from None
            options = [f"-D{k}={v}" for k, v in definitions.items()]
            launch = self._builder.build_user_kernel(name, file, patched.text, options, signature)
            known = self._compiled[key] = _Built(launch, signature)
        return known


def _check_types(
    name: str, pointers: Mapping[str, str], definitions: Mapping[str, str], specs: Mapping[str, Spec], device: str
) -> None:
    """Raise UnsupportedDTypeError for a tensor whose dtype differs from its pointer's."""
    for parameter, written in pointers.items():
        spec = specs.get(parameter)
        kind = definitions.get(written, _UNSIGNED.get(written, written))
        kind = _VECTOR.sub("", kind)
        if spec is None or kind not in C_TYPES.values() or kind == C_TYPES[spec.dtype.name]:
            continue
        fitting = " or ".join(dtype for dtype, c in C_TYPES.items() if c == kind)
        raise UnsupportedDTypeError(
            message(
                name,
                f"{parameter} is {spec.dtype.name}",
                expected=f"{fitting}, for the parameter `{written} *{parameter}`",
                fix=f"cast it with .to(dtype), or declare the parameter as `{parameter}_t *`",
                device=device,
            )
        )


def _literal(value: Any) -> str:
    """Return the text of a macro for a constant."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value!r}f" if isinstance(value, float) else str(value)


def _only_file(file: str, text: str, name: str) -> str:
    """Return the text of the kernel's only file. Raises ValueError if it includes another one."""
    if name != file:
        raise ValueError(f"it includes {name}; expected a text without #include of files")
    return text
