"""`polyhal kernels`: list, show, edit, check and restore the kernel files of a device."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import described_names, device_names
from polyhal.cli.display import Json, plain_table, print_json, say, status_line
from polyhal.cli.reporting import BAD_INPUT, fail, reported

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.hal.core.kernels.library import KernelLibrary
    from polyhal.hal.device import Device

app = typer.Typer(
    help="Read and change the kernels of a device. A changed kernel is used after it has passed a check.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_BACKUP = ".old"
"""Extension of a changed file that `restore` has disabled."""
_EXTENSIONS = ("", ".cl", ".h", ".wgsl")
_CASE_TIMEOUT = 120.0
"""Timeout in seconds for one case of the conformance kit."""
_SHOWN_OPS = 4
_STATES = {
    "": "",
    "in use": "[green]in use[/]",
    "refused": "[red]refused[/]",
    "not checked": "[yellow]not checked[/]",
}

_Name = Annotated[
    str,
    typer.Argument(help="A kernel file, for example [bold]rowwise/softmax.cl[/]; folder and extension are optional."),
]
_Device = Annotated[
    str | None,
    typer.Option(
        autocompletion=device_names,
        help="The device, as named by [bold]polyhal devices[/]. Default: the default device.",
    ),
]


@app.command("list")
@reported
def list_(device: _Device = None, json: Json = False) -> None:
    """List the kernel files, the ops that use them on this device, and which files you have changed."""
    from rich.console import Console

    from polyhal.hal.testing.tuning.kernel_check import ops_by_kernel

    target, kernels = _open(device)
    files = ops_by_kernel(target)
    if json:
        rows = [
            {
                "file": n,
                "lines": len(kernels.shipped(n).splitlines()),
                "state": _state(kernels, n) or None,
                "ops": list(ops),
            }
            for n, ops in files.items()
        ]
        print_json("kernels list", {"device": target.name, "folder": kernels.overrides.folder, "files": rows})
        return
    table = plain_table("file", "lines", "yours", "used by", right=["lines"])
    for name, ops in files.items():
        more = f" and {len(ops) - _SHOWN_OPS} more" if len(ops) > _SHOWN_OPS else ""
        users = (", ".join(ops[:_SHOWN_OPS]) or "[dim]nothing on this device[/]") + more
        table.add_row(name, str(len(kernels.shipped(name).splitlines())), _STATES[_state(kernels, name)], users)
    console = Console(highlight=False)
    console.print(table)
    say(console, f"folder of your kernels: {kernels.overrides.folder}")
    for name in kernels.overrides.names():
        if name not in kernels.names() and not name.endswith(_BACKUP):
            fail(f"{kernels.overrides.folder / name} does not replace any shipped kernel{_suggestion(name, kernels)}")


@app.command()
@reported
def show(
    name: _Name,
    device: _Device = None,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Build it and show registers, memory and group sizes instead.")
    ] = False,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Print the shipped file even if you have changed it.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print your changes.")] = False,
    json: Json = False,
) -> None:
    """Print a kernel file; your version if you have changed it."""
    from rich.console import Console
    from rich.syntax import Syntax

    from polyhal.cli.views.kernel_statistics import print_variants, statistics_of

    target, kernels = _open(device)
    file, console = _resolve(name, kernels), Console(highlight=False)
    if statistics and not json:
        print_variants(console, target, statistics_of(target, kernels, file), file)
        return
    override = kernels.overrides.folder / file
    before = kernels.shipped(file)
    text = before if shipped or not override.is_file() else override.read_text(encoding="utf-8")
    if json:
        rows = statistics_of(target, kernels, file) if statistics else []
        facts = {"device": target.name, "file": file, "changed": override.is_file() and text != before, "text": text}
        print_json("kernels show", facts | {"statistics": rows})
        return
    if diff:
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), f"shipped/{file}", str(override), lineterm=""
        )
        text = "\n".join(lines)
        if not text:
            typer.echo(f"{file} is unchanged")
            return
    if console.is_terminal:
        console.print(Syntax(text, "diff" if diff else "c", background_color="default", word_wrap=True))
    else:
        typer.echo(text.rstrip("\n"))


@app.command("compile")
@reported
def compile_(
    target: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DEVICE",
            autocompletion=described_names,
            help="A described device, as in [bold]polyhal devices --all[/]: rx6800.",
        ),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(help="Kernel files. Default: the kernels of the workloads.")
    ] = None,
    workloads: Annotated[
        str, typer.Option(metavar="NAMES", help="Any of basics, mlp, cnn, gpt, captured and amp.")
    ] = "basics,mlp,cnn,gpt,captured,amp",
    units: Annotated[
        bool, typer.Option("--units", help="With matrix units on, as after [bold]polyhal verify --units[/].")
    ] = False,
    json: Json = False,
) -> None:
    """Compile kernels with offline compilers for a device that this machine does not have, and show their statistics.

    For kernel files, shows each variant that samples of ops need; for workloads, the worst variant of each kernel.
    """
    from rich.console import Console

    from polyhal.cli.views.kernel_statistics import print_variants, print_worst, statistics_of

    device, kernels = _open(f"described:{target.removeprefix('described:')}{',units' if units else ''}")
    console = Console(highlight=False, stderr=json)
    chosen = [_resolve(name, kernels) for name in names or ()]
    if chosen and json:
        print_json(
            "kernels compile",
            {
                "device": device.name,
                "kernels": [row for file in chosen for row in statistics_of(device, kernels, file)],
            },
        )
        return
    for file in chosen:
        print_variants(console, device, statistics_of(device, kernels, file), file)
    if not names:
        _run_workloads(device, workloads)
        files = sorted({build.kernel for build in kernels.program_builds})
        with status_line(console, f"compiling for {device.info.name}") as update:
            rows: list[Mapping[str, Any]] = []
            for file in files:
                update(f"compiling {file} for {device.info.name}")
                rows += kernels.statistics(file)
        if json:
            print_json("kernels compile", {"device": device.name, "kernels": rows})
        else:
            print_worst(console, rows)


def _run_workloads(device: Device, names: str) -> None:
    """Run workloads on a device whose values are undefined. Raises BadParameter for unknown ones."""
    import warnings

    from polyhal.cli.workers.build_workloads import all_workloads, chosen

    try:
        wanted = chosen(names)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--workloads") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values read from it are zeros, about which it warns
        for name in wanted:
            all_workloads()[name](device)


@app.command()
@reported
def edit(name: _Name, device: _Device = None) -> None:
    """Open a kernel in your editor, then check it. If it passes, this device uses it."""
    target, kernels = _open(device)
    file = _resolve(name, kernels)
    override = kernels.overrides.folder / file
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    if not override.exists():
        override.parent.mkdir(parents=True, exist_ok=True)
        override.write_text(kernels.shipped(file), encoding="utf-8")
    try:
        code = subprocess.run([*editor, str(override)], check=False).returncode
    except OSError as error:
        _discard_if_unchanged(kernels, file)
        fail(f"the editor {editor[0]!r} does not start: {error.strerror}; set EDITOR or write {override} by hand")
        raise typer.Exit(BAD_INPUT) from error
    unchanged = _discard_if_unchanged(kernels, file)
    if code:
        fail(f"the editor exited with code {code}; {override} was not checked")
        raise typer.Exit(1)
    if unchanged:
        typer.echo(f"{file} is unchanged; there is nothing to check")
        return
    _check(target, kernels, [file])


@app.command()
@reported
def check(
    name: Annotated[str | None, typer.Argument(help="A kernel file. Default: every file that you changed.")] = None,
    device: _Device = None,
    json: Json = False,
) -> None:
    """Check changed kernels against the reference and time them against the shipped ones.

    A kernel with wrong results is not used, and the differences are shown. Exits with code 1 in that case.
    """
    target, kernels = _open(device)
    known = set(kernels.names())
    files = [_resolve(name, kernels)] if name else [f for f in kernels.overrides.names() if f in known]
    if not files and not json:
        typer.echo(f"{kernels.overrides.folder} contains no changed kernel; `polyhal kernels edit NAME` creates one")
        return
    _check(target, kernels, files, json=json)


@app.command()
@reported
def restore(name: _Name, device: _Device = None) -> None:
    """Use the shipped kernel again. Your file is kept with the extension .old."""
    _, kernels = _open(device)
    override = kernels.overrides.folder / _resolve(name, kernels)
    if not override.is_file():
        typer.echo(f"{override.name} is unchanged")
        return
    backup = override.with_name(override.name + _BACKUP)
    shutil.move(override, backup)
    typer.echo(f"the shipped {override.name} is used again; yours is {backup}")


def _discard_if_unchanged(kernels: KernelLibrary, file: str) -> bool:
    """Delete the user's copy of a file if it equals the shipped one. Returns whether it was deleted."""
    override = kernels.overrides.folder / file
    unchanged = override.read_text(encoding="utf-8") == kernels.shipped(file)
    if unchanged:
        override.unlink()
    return unchanged


def _open(name: str | None) -> tuple[Device, KernelLibrary]:
    from polyhal.hal.core.kernels.prebuild import library
    from polyhal.hal.device import Device

    device = Device(name)
    return device, library(device)


def _resolve(name: str, kernels: KernelLibrary) -> str:
    """Return the file name for `name`, which may lack its folder and extension. Raises BadParameter with close matches."""
    known = kernels.names()
    spellings = [name + extension for extension in _EXTENSIONS]
    for candidate in spellings:
        if candidate in known:
            return candidate
    matches = [n for n in known if n.endswith(tuple(f"/{s}" for s in spellings))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise typer.BadParameter(f"{name!r} matches {len(matches)} files: {', '.join(matches)}", param_hint="NAME")
    raise typer.BadParameter(f"kernel file {name!r} does not exist{_suggestion(name, kernels)}", param_hint="NAME")


def _suggestion(name: str, kernels: KernelLibrary) -> str:
    stems = sorted({PurePosixPath(n).stem for n in kernels.names()})
    matches = difflib.get_close_matches(PurePosixPath(name).stem, stems, 3)
    return f"; did you mean {' or '.join(matches)}?" if matches else "; `polyhal kernels list` shows all"


def _state(kernels: KernelLibrary, name: str) -> str:
    """Return the state of a changed file, in words; empty for unchanged files."""
    path = kernels.overrides.folder / name
    if not path.is_file():
        return ""
    problem = kernels.overrides.problem(name, path.read_text(encoding="utf-8"))
    if not problem:
        return "in use"
    checked = name in kernels.overrides.verdicts() and not problem.startswith("it has changed")
    return "refused" if checked else "not checked"


def _check(device: Device, kernels: KernelLibrary, files: list[str], *, json: bool = False) -> None:
    """Check files, print and store the verdicts. Raises Exit with code 1 if one fails."""
    from rich.console import Console

    from polyhal.hal.core.kernels.library import Verdict, digest

    console, results = Console(highlight=False, stderr=json), {}
    for file in files:
        path = kernels.overrides.folder / file
        if not path.is_file():
            problem = f"you have not changed {file}; `polyhal kernels edit {file}` does"
            raise typer.BadParameter(problem, param_hint="NAME")
        text = path.read_text(encoding="utf-8")
        result = _check_in_subprocess(console, device, file)
        today = datetime.now(UTC).date().isoformat()
        verdict = Verdict(digest(text), result.get("problem", ""), result.get("ratio", 0.0), today)
        kernels.overrides.store(file, verdict)
        results[file] = result
        if not json:
            _print_verdict(console, device, file, result)
    if json:
        print_json("kernels check", {"device": device.name, "files": [{"file": f, **r} for f, r in results.items()]})
    if any(result.get("problem") for result in results.values()):
        raise typer.Exit(1)


def _check_in_subprocess(console: Console, device: Device, file: str) -> dict[str, Any]:
    """Run the check in a subprocess, which a broken kernel may crash or hang. Returns its result, or a problem."""
    from polyhal.cli.workers.pool import WorkerPool

    last = ""
    result: dict[str, Any] = {}
    with status_line(console, f"checking {file}") as update:
        try:
            with WorkerPool("polyhal.cli.workers.check", [[device.name, file]]) as pool:
                for message in pool.messages(_CASE_TIMEOUT):
                    if "ran" in message.content:
                        last = message.content["ran"]
                        update(f"checking {file}: {last}")
                    elif message.content:
                        result = message.content
                    elif message.exit_code and not result:
                        after = f" after {last}" if last else ""
                        exit_code, stderr = message.exit_code, message.stderr
                        result = {"problem": f"the process exited with code {exit_code}{after}: {stderr}"}
        except TimeoutError as error:
            result = {"problem": f"{error}, after {last}" if last else str(error)}
    if not result.get("problem") and not result.get("ops"):
        result["problem"] = "no sample of an op uses it on this device, so it cannot be checked"
    return result


def _print_verdict(console: Console, device: Device, file: str, result: dict[str, Any]) -> None:
    """Print the result of a check."""
    if result["problem"]:
        fail(f"{file} is rejected and the shipped kernel stays in use on {device.name}: {result['problem']}")
        for line in result.get("detail", "").splitlines():
            say(console, f"  {line}")
        return
    ops = ", ".join(result["ops"][:_SHOWN_OPS]) + (" and more" if len(result["ops"]) > _SHOWN_OPS else "")
    say(console, f"{file} passed {result['passed']} checks of {ops}; {device.name} now uses it")
    if result["timings"]:
        table = plain_table("call", "shipped", "yours", "speedup", right=["shipped", "yours", "speedup"])
        for t in result["timings"]:
            ratio = t["speedup"]
            style = "green" if ratio > 1 else "red" if ratio < 1 else ""
            text = "no difference measured" if ratio == 1 else f"{ratio:.2f}x"
            table.add_row(t["call"], f"{t['shipped'] * 1e6:.1f} us", f"{t['changed'] * 1e6:.1f} us", text, style=style)
        console.print(table)
    if 0 < result["ratio"] < 1:
        say(console, f"it is slower than the shipped one; `polyhal kernels restore {file}` undoes the change", "yellow")
