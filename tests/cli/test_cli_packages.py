"""Commands of packages: a broken or missing package disables its own commands, and no other."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import typer

from polyhal.cli import applications

from .conftest import Command


def test_a_command_that_cannot_be_loaded_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    command = applications.load(EntryPoint("serve", "no_such_module:serve", applications.COMMANDS_GROUP))
    assert "Not available" in command.__doc__
    with pytest.raises(typer.Exit) as ended:
        command()
    assert ended.value.exit_code == 2
    assert "the command serve" in (error := capsys.readouterr().err)
    assert "no_such_module" in error


def test_an_option_without_its_package_is_bad_input(polyhal: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "entry_points", lambda group: ())
    outcome = polyhal("doctor", "--report")
    assert outcome.code == 2
    assert "no installed package has the entry point doctor.report of the group polyhal.commands" in outcome.err


def test_the_command_line_works_without_the_applications() -> None:
    code = """
import sys
sys.modules["polyhal.commands"] = None
from polyhal.cli.app import run
print(run(["explain", "add", "--device", "numpy"]), run(["train"]), run(["sim", "devices"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1] == "0 2 0", done.stderr
    assert "error: the command train of the package polyhal cannot be loaded" in done.stderr
