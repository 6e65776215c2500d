"""Exports for browsers: programs for WebGPU with a runtime of plain JavaScript, as a folder or as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyhal.export.building import build_program
from polyhal.export.program import ProgramTensor, StepProgram
from polyhal.export.program_file import encode_program
from polyhal.export.retargeting import Retargeted, retarget
from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.device import Device
from polyhal.hal.errors import ExportError, message

FORMAT = "polyhal-export"
SCHEMA = 1
MODULES = {
    "polyhal": "polyhal.js",
    "polyhal/program": "program.js",
    "polyhal/numbers": "numbers.js",
    "polyhal/tensors": "tensors.js",
    "polyhal/checkpoint": "checkpoint.js",
    "polyhal/tokenizer": "tokenizer.js",
    "polyhal/view": "view.js",
}
"""Files of the runtime by the name under which pages import them."""
_ALIGNMENT = 256
_STEP = "step"
Names = Sequence[str] | Mapping[str, Sequence[str]] | None


def webgpu(
    steps: Any,
    path: str | os.PathLike[str],
    *,
    inputs: Names = None,
    outputs: Names = None,
    title: str = "",
    page: str = "",
    data: Mapping[str, Any] | None = None,
    float16: bool = False,
) -> Path:
    """Write captured steps as a page that runs them in a browser with WebGPU, without Python.

    `steps` is one step as `record_program` takes it, or a dictionary of steps by name; state that several of them use in the
    same memory, such as the parameters of a training step and of an inference step, is shared in the page. A `path` with the
    suffix .html becomes one file with everything in it, another one a folder for a web server. `inputs` and `outputs` name
    arguments and results, for several steps in a dictionary by step. `page` is JavaScript of an own page, a module that imports
    `load` from "polyhal"; by default the page runs the steps on numbers that the user enters. `data` is any plain data for it,
    as the text of the element `polyhal-data`. With `float16`, kernels use 16-bit floats, which not every GPU has.

    Raises ExportError, which lists all work that cannot run in a browser, before anything is written, and ValueError without
    steps.
    """
    named = dict(steps) if isinstance(steps, Mapping) else {_STEP: steps}
    if not named:
        raise ValueError(message("export", "there are no steps", expected="at least one, by name"))
    device = Device("described:webgpu,record,f16" if float16 else "described:webgpu,record")
    loaded: dict[str, Retargeted] = {}
    programs: dict[str, StepProgram] = {}
    problems: list[str] = []
    for name, step in named.items():
        try:
            loaded[name] = retarget(step, device, "webgpu")
            programs[name] = build_program(
                loaded[name], "webgpu", name, _names_of(inputs, name), _names_of(outputs, name)
            )
        except ExportError as error:
            problems.append(f"{name}: {error}" if len(named) > 1 else str(error))
    if problems:
        raise ExportError("\n".join(problems))
    header, contents = encode_bundle(programs, _shared(loaded, programs))
    text = page or _text("page.js")
    title = title or ", ".join(named)
    target = Path(path)
    if target.suffix.lower() in (".html", ".htm"):
        _write(target, _page(title, text, data, header, contents).encode())
        return target
    for name in MODULES.values():
        _write(target / name, _text(name).encode())
    _write(target / "export.bin", contents)
    _write(target / "export.json", json.dumps(header).encode())
    _write(target / "index.html", _page(title, text, data).encode())
    return target


def encode_bundle(
    programs: Mapping[str, StepProgram], shared: Mapping[str, Mapping[str, tuple[str, str]]]
) -> tuple[dict[str, Any], bytes]:
    """Return programs with common contents. `shared` has, by program and state, the earlier program and state in its memory."""
    contents = bytearray()
    places: dict[bytes, int] = {}
    headers: dict[str, Any] = {}
    for name, program in programs.items():
        header, own = encode_program(program)
        elsewhere = {t.buffer for t in program.state if t.name in shared.get(name, {})}
        for number, entry in enumerate(header["buffers"]):
            if "content" not in entry:
                continue
            if number in elsewhere:
                del entry["content"]
                continue
            start, length = entry["content"]
            part = own[start : start + length]
            key = hashlib.sha256(part).digest()
            if key not in places:
                contents += bytes(-len(contents) % _ALIGNMENT)
                places[key] = len(contents)
                contents += part
            entry["content"] = [places[key], length]
        del header["contents"]
        headers[name] = header
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "contents": {"nbytes": len(contents), "sha256": hashlib.sha256(contents).hexdigest()},
        "shared": {name: {k: list(v) for k, v in found.items()} for name, found in shared.items() if found},
        "programs": headers,
    }, bytes(contents)


def _names_of(names: Names, step: str) -> Sequence[str] | None:
    return names.get(step) if isinstance(names, Mapping) else names


def _shared(
    loaded: Mapping[str, Retargeted], programs: Mapping[str, StepProgram]
) -> dict[str, dict[str, tuple[str, str]]]:
    """Return state that is in the memory of an earlier program's state, by program and name."""
    owners: dict[Any, tuple[str, str]] = {}
    shared: dict[str, dict[str, tuple[str, str]]] = {}
    for name, program in programs.items():
        shared[name] = {}
        for tensor in program.state:
            recorded = loaded[name].recorded.get(tensor.name)
            if recorded is None:
                continue
            key = id(recorded.buffer), recorded.ref.offset, _layout(tensor)
            owner = owners.setdefault(key, (name, tensor.name))
            if owner[0] != name:
                shared[name][tensor.name] = owner
    return shared


def _layout(tensor: ProgramTensor) -> tuple[Any, ...]:
    return tensor.offset, tensor.dtype, tensor.shape, tensor.strides


def _text(name: str) -> str:
    return (files("polyhal.export") / "browser" / name).read_text(encoding="utf-8")


def _page(
    title: str,
    script: str,
    data: Mapping[str, Any] | None,
    header: Mapping[str, Any] | None = None,
    contents: bytes = b"",
) -> str:
    """Return the HTML of a page: with everything in it if `header` is given, else for a folder with the other files."""
    if header is None:
        imports = {name: f"./{file}" for name, file in MODULES.items()}
    else:
        encoded = {name: base64.b64encode(_text(file).encode()).decode() for name, file in MODULES.items()}
        imports = {name: f"data:text/javascript;base64,{text}" for name, text in encoded.items()}
    embedded = [_element("polyhal-data", data)] if data is not None else []
    if header is not None:
        embedded.append(_element("polyhal-export", header))
        embedded.append(
            f'<script type="text/plain" id="polyhal-contents">{base64.b64encode(contents).decode()}</script>'
        )
    return _text("page.html").format_map(
        {
            "title": html.escape(title),
            "style": _text("page.css"),
            "imports": _json({"imports": imports}),
            "embedded": "\n".join(embedded),
            "script": script.replace("</script", "<\\/script"),
        }
    )


def _element(name: str, value: Any) -> str:
    return f'<script type="application/json" id="{name}">{_json(value)}</script>'


def _json(value: Any) -> str:
    """JSON that cannot end the element that it is in."""
    try:
        return json.dumps(value).replace("<", "\\u003c")
    except TypeError as error:
        raise TypeError(
            message("export", f"data for the page: {error}", expected="numbers, texts, lists and dictionaries")
        ) from error


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
