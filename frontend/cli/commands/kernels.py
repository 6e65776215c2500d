"""`polyhal kernels`: list, read, change and check the kernels of a device."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.reporting import fail, reported

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from polyhal.hal.device import Device
    from polyhal.hal.kernels.library import KernelLibrary

app = typer.Typer(
    help="Read and change the kernels of a device. A changed kernel is used once it has passed a check.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_SILENCE = 120.0
"""Seconds that one case of the conformance kit may take."""
_SHOWN_OPS = 4
_LONG = 24
"""Characters of a definition that is code and not shown."""

_Name = Annotated[
    str, typer.Argument(help="A kernel file, as in [bold]rowwise/softmax.cl[/]; folder and ending may be left out.")
]
_Device = Annotated[
    str | None, typer.Option(help="The device, as [bold]polyhal devices[/] names it; the default if not given.")
]


@app.command("list")
@reported
def list_(device: _Device = None) -> None:
    """List the kernel files, the ops that they serve on this device, and which of them you have changed."""
    from rich.console import Console

    from polyhal.hal.testing.tools.kernel_check import uses

    target, kernels = _open(device)
    table = _table("file", "lines", "yours", "serves", right="lines")
    for name, ops in uses(target).items():
        more = f" and {len(ops) - _SHOWN_OPS} more" if len(ops) > _SHOWN_OPS else ""
        served = (", ".join(ops[:_SHOWN_OPS]) or "[dim]nothing on this device[/]") + more
        table.add_row(name, str(len(kernels.shipped(name).splitlines())), _state(kernels, name), served)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"your kernels are in {kernels.overrides.folder}", markup=False, soft_wrap=True)
    for name in kernels.overrides.names():
        if name not in kernels.names():
            fail(f"{kernels.overrides.folder / name} takes no shipped kernel's place{_close(name, kernels)}")


@app.command()
@reported
def show(
    name: _Name,
    device: _Device = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Build it and tell registers, memory and group sizes instead.")
    ] = False,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="The file as it came, although you have changed it.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="What you have changed.")] = False,
) -> None:
    """Print a kernel file, yours where you have changed it."""
    from rich.console import Console
    from rich.syntax import Syntax

    target, kernels = _open(device)
    file, console = _resolve(name, kernels), Console(highlight=False)
    if statistics:
        _statistics(console, target, kernels, file)
        return
    own = kernels.overrides.folder / file
    before = kernels.shipped(file)
    text = before if shipped or not own.is_file() else own.read_text(encoding="utf-8")
    if diff:
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), f"shipped/{file}", str(own), lineterm="")
        text = "\n".join(lines)
        if not text:
            typer.echo(f"{file} is as it came")
            return
    if console.is_terminal:
        console.print(Syntax(text, "diff" if diff else "c", background_color="default", word_wrap=True))
    else:
        typer.echo(text.rstrip("\n"))


@app.command()
@reported
def edit(name: _Name, device: _Device = None) -> None:
    """Change a kernel in your editor; afterwards it is checked, and used from then on if it is right."""
    target, kernels = _open(device)
    file = _resolve(name, kernels)
    own = kernels.overrides.folder / file
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(kernels.shipped(file), encoding="utf-8")
    try:
        code = subprocess.run([*editor, str(own)], check=False).returncode
    except OSError as error:
        fail(f"the editor {editor[0]!r} does not start: {error.strerror}; set EDITOR, or change {own} in any other way")
        raise typer.Exit(2) from error
    if code:
        fail(f"the editor ended with code {code}; {own} is left as it is and not checked")
        raise typer.Exit(1)
    if own.read_text(encoding="utf-8") == kernels.shipped(file):
        own.unlink()
        typer.echo(f"{file} is as it came: nothing to check")
        return
    _check(target, kernels, [file])


@app.command()
@reported
def check(
    name: Annotated[str | None, typer.Argument(help="A kernel file; all that you have changed if not given.")] = None,
    device: _Device = None,
) -> None:
    """Check changed kernels against the reference and time them against the shipped ones.

    What is wrong is not used, and you are told what differs. Exits with code 1 then.
    """
    target, kernels = _open(device)
    known = set(kernels.names())
    files = [_resolve(name, kernels)] if name else [f for f in kernels.overrides.names() if f in known]
    if not files:
        typer.echo(f"no kernel is changed: {kernels.overrides.folder} has none; `polyhal kernels edit NAME` starts one")
        return
    _check(target, kernels, files)


@app.command()
@reported
def restore(name: _Name, device: _Device = None) -> None:
    """Take a changed kernel out of use; your file stays beside it with the ending .old."""
    _, kernels = _open(device)
    own = kernels.overrides.folder / _resolve(name, kernels)
    if not own.is_file():
        typer.echo(f"{own.name} is as it came")
        return
    kept = own.with_name(own.name + ".old")
    shutil.move(own, kept)
    typer.echo(f"the shipped {own.name} is used again; yours is {kept}")


def _open(name: str | None) -> tuple[Device, KernelLibrary]:
    from polyhal.hal.device import Device
    from polyhal.hal.kernels.prebuild import library

    device = Device(name)
    return device, library(device)


def _resolve(name: str, kernels: KernelLibrary) -> str:
    """The file that a name stands for. Raises BadParameter with the names that are close."""
    known = kernels.names()
    for candidate in (name, f"{name}.cl", f"{name}.h"):
        if candidate in known:
            return candidate
    matches = [n for n in known if n.endswith((f"/{name}", f"/{name}.cl", f"/{name}.h"))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise typer.BadParameter(
            f"{name!r} is the name of {len(matches)} files: {', '.join(matches)}", param_hint="NAME"
        )
    raise typer.BadParameter(f"there is no kernel file {name!r}{_close(name, kernels)}", param_hint="NAME")


def _close(name: str, kernels: KernelLibrary) -> str:
    stems = sorted({PurePosixPath(n).stem for n in kernels.names()})
    near = difflib.get_close_matches(PurePosixPath(name).stem, stems, 3)
    return f"; did you mean {' or '.join(near)}?" if near else "; `polyhal kernels list` shows all"


def _state(kernels: KernelLibrary, name: str) -> str:
    path = kernels.overrides.folder / name
    if not path.is_file():
        return ""
    problem = kernels.overrides.problem(name, path.read_text(encoding="utf-8"))
    if not problem:
        return "[green]in use[/]"
    checked = name in kernels.overrides.verdicts() and not problem.startswith("it has changed")
    return "[red]refused[/]" if checked else "[yellow]not checked[/]"


def _check(device: Device, kernels: KernelLibrary, files: list[str]) -> None:
    """Check files, say what was found and remember it."""
    from rich.console import Console

    from polyhal.hal.kernels.library import Verdict, digest

    console, well = Console(highlight=False), True
    for file in files:
        path = kernels.overrides.folder / file
        if not path.is_file():
            raise typer.BadParameter(
                f"you have not changed {file}; `polyhal kernels edit {file}` does", param_hint="NAME"
            )
        text = path.read_text(encoding="utf-8")
        found = _try(console, device, file)
        day = datetime.now(UTC).date().isoformat()
        kernels.overrides.judge(file, Verdict(digest(text), found.get("problem", ""), found.get("ratio", 0.0), day))
        well = _tell(console, device, file, found) and well
    if not well:
        raise typer.Exit(1)


def _try(console: Console, device: Device, file: str) -> dict[str, Any]:
    """What a process of its own finds out about a changed file."""
    from polyhal.cli.workers.pool import Workers

    status = console.status(f"checking {file}") if console.is_terminal else None
    if status:
        status.start()
    last, found = "", {}
    try:
        with Workers("polyhal.cli.workers.check", [[device.name, file]], {}) as workers:
            for message in workers.messages(_SILENCE):
                if "ran" in message.content:
                    last = message.content["ran"]
                    if status:
                        status.update(f"checking {file}: {last}")
                elif message.content:
                    found = message.content
                elif message.code and not found:
                    after = f" after {last}" if last else ""
                    found = {"problem": f"the process ended with code {message.code}{after}: {message.said}"}
    except TimeoutError as error:
        found = {"problem": f"{error}, after {last}" if last else str(error)}
    finally:
        if status:
            status.stop()
    if not found.get("problem") and not found.get("ops"):
        found["problem"] = "no sample of an op uses it on this device, so that it cannot be checked"
    return found


def _tell(console: Console, device: Device, file: str, found: dict[str, Any]) -> bool:
    if found["problem"]:
        fail(f"{file} is refused, the shipped kernel stays in use on {device.name}: {found['problem']}")
        for line in found.get("detail", "").splitlines():
            console.print(f"  {line}", markup=False, soft_wrap=True)
        return False
    console.print(
        f"{file} is right in {found['passed']} checks of {', '.join(found['ops'][:_SHOWN_OPS])}"
        f"{' and more' if len(found['ops']) > _SHOWN_OPS else ''}; it is used on {device.name} from now on",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    if found["timings"]:
        table = _table("call", "shipped", "yours", "speedup", right="shipped yours speedup")
        for t in found["timings"]:
            ratio = t["shipped"] / t["changed"]
            style = "green" if ratio > 1.03 else "red" if ratio < 0.97 else ""
            table.add_row(
                t["call"], f"{t['shipped'] * 1e6:.1f} us", f"{t['changed'] * 1e6:.1f} us", f"{ratio:.2f}x", style=style
            )
        console.print(table)
    if found["ratio"] and found["ratio"] < 0.97:
        console.print(
            f"it is slower than the shipped one; `polyhal kernels restore {file}` takes it out of use", style="yellow"
        )
    return True


def _statistics(console: Console, device: Device, kernels: KernelLibrary, file: str) -> None:
    from polyhal.hal.testing.tools.kernel_check import uses, variants

    variants(device, file, uses(device)[file])
    rows = kernels.statistics(file)
    if not rows:
        console.print(f"no sample of an op uses {file} on {device.name}", markup=False)
        return
    built = [{k: int(v) if isinstance(v, bool) else v for k, v in r["definitions"].items()} for r in rows]
    common = [k for k, v in built[0].items() if len(built) > 1 and all(d.get(k) == v for d in built)]
    if common:
        values = ", ".join(f"{k}={built[0][k]}" for k in common)
        console.print(f"all are built with {values}", markup=False, soft_wrap=True)
    figures = [k for k in dict.fromkeys(k for r in rows for k in r) if k not in ("kernel", "definitions")]
    table = _table("kernel", *(f.replace("_", " ") for f in figures), "built with", right=" ".join(figures))
    for r, defined in zip(rows, built, strict=True):
        own = ", ".join(f"{k}={v}" for k, v in defined.items() if k not in common and len(str(v)) < _LONG)
        table.add_row(r["kernel"], *(str(r.get(f, "")) for f in figures), own)
    console.print(table)


def _table(*titles: str, right: str = "") -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        number = title.replace(" ", "_") in right.split()
        table.add_column(title, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return table
