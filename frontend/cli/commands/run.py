"""`polyhal run`: run an ONNX model on inputs from files, and print or write its results."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, count, plain_table, print_json, say
from polyhal.cli.reporting import reported
from polyhal.hal.errors import CorruptFileError, ShapeError, message

if TYPE_CHECKING:
    import numpy as np

    from polyhal.onnx import OnnxModule

_SHOWN = 8
"""Maximum number of elements that are printed one by one."""


@reported
def run(
    model: Annotated[Path, typer.Argument(help="A file in ONNX's format.", exists=True, dir_okay=False)],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            help="[bold]NAME=FILE[/] (.npy, .npz or .pb), [bold]NAME=[[1, 2]][/] (numbers as JSON), or "
            "[bold]NAME=random:1x3x224x224[/]. Repeat it for each input.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results, one .npy file each. Default: a summary only.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(autocompletion=device_names, help="Device. Default: the best of this machine.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=0, help="Run it this many times more, and print the shortest time.")] = 0,
    as_json: Json = False,
) -> None:
    """Run an ONNX model, and print a summary of its results.

    Without inputs, those that the model needs are listed. The first run is recorded, and later ones replay it.
    """
    from rich.console import Console

    from polyhal.onnx import load
    from polyhal.onnx.backend import PreparedModel

    module = load(model, device=device)
    inputs = dict(_named(text, module) for text in given or [])
    prepared = PreparedModel(module)
    results = prepared.run(inputs)
    flat = [pair for n, v in zip(module.output_names, results, strict=True) for pair in _flat(n, v)]
    if output is not None:
        _write(output, dict(flat))
    seconds = _shortest(prepared, inputs, repeat) if repeat else None
    if as_json:
        facts = {"results": [_facts(*pair) for pair in flat], "output": output, "seconds": seconds}
        print_json("run", facts | {"eager_reason": module.eager_reason or None})
        return
    console = Console(highlight=False)
    table = plain_table("result", "dtype", "shape", "least", "mean", "greatest", right=("least", "mean", "greatest"))
    for label, array in flat:
        figures = ["" if number is None else f"{number:.6g}" for number in _summary(array)]
        table.add_row(label, array.dtype.name, "x".join(map(str, array.shape)) or "number", *figures)
    console.print(table)
    for label, array in flat:
        if array.size <= _SHOWN:
            say(console, f"{label}: {array.tolist()}")
    if output is not None:
        say(console, f"wrote {count(len(list(output.glob('*.npy'))), 'file')} to {output}")
    if module.eager_reason:
        say(console, f"runs op by op: {module.eager_reason}")
    if seconds is not None:
        say(console, f"{seconds * 1e3:.3g} ms, the shortest of {count(repeat, 'run')}")


def _named(text: str, module: OnnxModule) -> tuple[str, np.ndarray]:
    """Return the name and the array of an input. Raises PolyhalError."""
    import numpy as np

    name, sign, source = text.partition("=")
    if not sign or name not in module.input_names:
        names = ", ".join(module.input_names)
        raise ShapeError(message("run", f"--input {text}", expected=f"NAME=FILE, NAME one of {names or 'no inputs'}"))
    from polyhal.onnx.element_types import numpy_dtype

    dtype = next(numpy_dtype(i.element_type) for i in module.inputs if i.name == name) or np.dtype(np.float32)
    if source.startswith("random:"):
        try:
            shape = [int(n) for n in source.removeprefix("random:").split("x") if n]
            values = np.random.default_rng(0).standard_normal(shape)
        except (ValueError, MemoryError) as error:
            raise ShapeError(message("run", f"--input {text}: {error}", expected="random:2x3")) from error
        return name, values.astype(dtype)
    if source[:1] in "[-.0123456789" and not Path(source).exists():
        try:
            return name, np.array(json.loads(source), dtype)
        except ValueError as error:
            raise ShapeError(message("run", f"--input {text}: {error}", expected="numbers, as in x=[1, 2]")) from error
    return name, _read(Path(source), name)


def _read(path: Path, name: str) -> np.ndarray:
    """Return an array of a file. Raises CorruptFileError."""
    import numpy as np

    try:
        if path.suffix == ".pb":
            return _tensor_message(path)
        found: Any = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            key = name if name in found.files else next(iter(found.files))
            array: np.ndarray = found[key]
            return array
    except (ValueError, EOFError, StopIteration) as error:
        problem = f"{path} does not contain an array: {error}"
        fix = "write it by numpy.save, without Python objects"
        raise CorruptFileError(message("run", problem, expected="a .npy, .npz or .pb file", fix=fix)) from error


def _tensor_message(path: Path) -> np.ndarray:
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

    from polyhal.onnx.stored import Initializer

    proto = TensorProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return Initializer(proto, None).read()


def _flat(name: str, value: Any) -> list[tuple[str, np.ndarray]]:
    """Return the arrays of a result by name: of a sequence several, of an absent optional value none."""
    if value is None:
        return []
    if isinstance(value, list):
        return [pair for i, v in enumerate(value) for pair in _flat(f"{name}.{i}", v)]
    return [(name, value)]


def _summary(array: np.ndarray) -> list[float | None]:
    """Return the least element, the mean and the greatest element; None for arrays without elements or numbers."""
    if not array.size or array.dtype.kind not in "biufV":
        return [None, None, None]
    wide = array.astype("float64")
    return [float(number) for number in (wide.min(), wide.mean(), wide.max())]


def _facts(name: str, array: np.ndarray) -> dict[str, Any]:
    least, mean, greatest = _summary(array)
    figures = {"least": least, "mean": mean, "greatest": greatest}
    values = {"values": array.tolist()} if array.size <= _SHOWN else {}
    return {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), **figures, **values}


def _write(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays to files, whose names have no characters that a path could not have."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".") or "result"
        np.save(folder / f"{safe}.npy", array, allow_pickle=False)


def _shortest(prepared: Any, inputs: dict[str, np.ndarray], repeat: int) -> float:
    """Return the seconds of the shortest run, results read."""
    shortest = math.inf
    for _ in range(repeat):
        begin = time.perf_counter()
        prepared.run(inputs)
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest
