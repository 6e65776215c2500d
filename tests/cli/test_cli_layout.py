"""Packages of the command line: every file of `commands/` is a command, each worker belongs to one, start-up is fast."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal import cli
from polyhal.cli.app import COMMANDS, OWN_COMMANDS, app

from .conftest import Command

CLI = Path(cli.__file__).parent
SUPPORT = {"pool", "build_workloads", "program"}
"""Modules in the folder of workers that are not entry points."""


def modules(package: str) -> set[str]:
    return {p.stem for p in (CLI / package).glob("*.py")} - {"__init__"}


def test_every_file_of_commands_is_a_command() -> None:
    assert set(OWN_COMMANDS) == modules("commands")
    assert set(COMMANDS) - set(OWN_COMMANDS) == {
        "train",
        "generate",
        "plan",
        "chat",
        "finetune",
        "merge",
        "models",
        "perplexity",
        "quantize",
        "serve",
    }
    assert len(COMMANDS) == len(set(COMMANDS))
    names = [c.name for c in app.registered_commands] + [g.name for g in app.registered_groups]
    assert sorted(map(str, names)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(modules("workers") - SUPPORT))
def test_every_worker_runs_as_a_module_and_is_started_by_a_command(name: str) -> None:
    entry = f"polyhal.cli.workers.{name}"
    assert [p.name for p in (CLI / "commands").glob("*.py") if f'"{entry}"' in p.read_text(encoding="utf-8")]
    assert 'if __name__ == "__main__":' in (CLI / "workers" / f"{name}.py").read_text(encoding="utf-8")


def test_no_two_files_of_the_command_line_have_the_same_name() -> None:
    names = [p.stem for p in CLI.rglob("*.py") if p.stem != "__init__"]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, polyhal: Command) -> None:
    outcome = polyhal(name, "--help")
    assert outcome.code == 0
    assert f" {name} " in outcome.out
    if name not in {g.name for g in app.registered_groups}:
        (command,) = [c for c in app.registered_commands if c.name == name]
        assert command.callback is not None
        assert command.callback.__doc__


def test_help_texts_have_no_line_breaks_within_paragraphs() -> None:
    """Line breaks of the source would appear on every terminal."""
    groups = [g.typer_instance for g in app.registered_groups if g.typer_instance is not None]
    commands = [*app.registered_commands, *(c for g in groups for c in g.registered_commands)]
    texts = [c.help or inspect.cleandoc((c.callback and c.callback.__doc__) or "") for c in commands]
    assert len(texts) > len(COMMANDS)
    assert [text for text in texts if any("\n" in paragraph for paragraph in text.split("\n\n"))] == []


def test_registering_commands_imports_none_of_their_work() -> None:
    code = "import sys, polyhal; before = set(sys.modules); import polyhal.cli.app; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    ours = {m for m in done.stdout.split() if m.startswith("polyhal.")}
    assert ours <= {
        "polyhal.cli",
        "polyhal.cli.app",
        "polyhal.cli.applications",
        "polyhal.cli.commands",
        "polyhal.cli.completion",
        "polyhal.cli.display",
        "polyhal.cli.reporting",
        "polyhal.hal.byte_sizes",
        "polyhal.hal.core.settings.env",
        "polyhal.hal.core.settings.pages",
        *(f"polyhal.cli.commands.{name}" for name in OWN_COMMANDS),
        "polyhal.commands",
        "polyhal.commands.language_options",
        *(
            f"polyhal.commands.{name}"
            for name in (
                "train",
                "generate",
                "plan",
                "calibrate",
                "chat",
                "finetune",
                "merge",
                "models",
                "perplexity",
                "quantize",
                "serve",
            )
        ),
    }
