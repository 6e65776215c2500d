"""`--json`: every command that prints facts prints one object, in one form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from native_devices import opencl_devices
from typer.main import get_command

from polyhal.cli.app import app

from .conftest import Command

PROGRAM = """
import polyhal as ph
x = ph.ones((4, 8), requires_grad=True)
x.softmax(-1).sum().backward()
print("output")
"""
WITHOUT_FACTS = {
    "chat",  # conversations and texts, which are streamed
    "generate",
    "serve",
    "finetune",  # runs, which write metrics.jsonl
    "train",
    "launch",  # other programs
    "export",  # files
    "kernels edit",  # an editor
    "kernels restore",
}
"""Commands without an option --json."""
FAST: dict[str, Sequence[str]] = {
    "devices": (),
    "devices --cards": (),
    "doctor": ("--no-test",),
    "verify": ("numpy", "--only", "forward/exp/float32*", "--small", "--no-quarantine"),
    "explain": ("nn.LSTM", "--device", "numpy"),
    "trace": ("program.py", "--device", "numpy"),
    "profile": ("program.py", "--device", "numpy"),
    "sim devices": (),
    "sim explain": ("program.py", "--device", "sim:teaching", "--out", "page.html"),
    "plan": ("--model", "gpt2-124m", "--devices", "1xh200", "--batch", "1", "--context", "16", "--no-curve"),
    "models": (".", "--device", "numpy"),
    "kernels list": ("--device", "described:rx6800"),
    "kernels check": ("--device", "described:rx6800"),
    "kernels show": ("softmax", "--device", "described:rx6800"),
}
"""Arguments by command. Described devices have kernels on every machine."""
ELSEWHERE = {
    "bench": "tests/reports/test_comparison.py",
    "bisect": "tests/cli/test_cli_bisect.py",
    "kernels compile": "tests/cli/test_cli_kernels_compile.py",
    "merge": "tests/cli/test_cli_finetune.py",
    "perplexity": "tests/cli/test_cli_finetune.py",
    "prebuild": "tests/cli/test_cli_json.py",
    "quantize": "tests/cli/test_cli_language_models.py",
    "run": "tests/cli/test_cli_run.py",
    "sim calibrate": "tests/cli/test_cli_json.py",
    "tune": "tests/cli/test_cli_json.py",
}
"""Files that test --json of commands with costly preparations."""


def commands() -> dict[str, Any]:
    """Return all commands by name, subcommands with the name of their group."""
    group: Any = get_command(app)
    found = {}
    for name, command in group.commands.items():
        found |= (
            {f"{name} {n}": c for n, c in command.commands.items()} if hasattr(command, "commands") else {name: command}
        )
    return found


def test_every_command_with_facts_has_the_option_and_a_test() -> None:
    with_json = {n for n, c in commands().items() if any("--json" in p.opts for p in c.params)}
    assert set(commands()) - with_json == WITHOUT_FACTS
    tested = {n.removesuffix(" --cards") for n in FAST} | set(ELSEWHERE)
    assert with_json == tested
    root = Path(__file__).resolve().parents[2]
    for file in set(ELSEWHERE.values()):
        assert "--json" in (root / file).read_text(encoding="utf-8"), file


def parsed(out: str, name: str) -> dict[str, Any]:
    """Parse the output of a command. Numbers that JSON lacks are an error."""
    found: dict[str, Any] = json.loads(out, parse_constant=lambda text: pytest.fail(f"{name} prints {text}"))
    assert list(found)[:2] == ["schema", "command"]
    assert (found["schema"], found["command"]) == (1, name)
    for key in found:
        assert key == key.lower().replace(" ", "_"), key
    assert len(found) > 2
    return found


@pytest.mark.parametrize("name", FAST)
def test_the_output_is_one_object(name: str, polyhal: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = polyhal(*name.split(), *FAST[name], "--json")
    assert done.code == 0, done.err
    found = parsed(done.out, name.removesuffix(" --cards"))
    assert ("output" in done.err.splitlines()) == (name in ("trace", "profile", "sim explain"))
    if name == "trace":
        assert {"softmax", "sum"} <= {op["op"] for op in found["ops"]}
        assert sum(row["calls"] for row in found["sums"]) == len(found["ops"])
    if name == "profile":
        assert {"softmax", "sum"} <= {row["name"] for row in found["ops"]}
    if name == "explain":
        assert "lstm" in [op["op"] for op in found["ops"]] + found["further_ops"]


def test_bad_input_prints_no_json(polyhal: Command) -> None:
    done = polyhal("explain", "sofmax", "--json")
    assert (done.code, done.out) == (2, "")


@pytest.mark.slow
def test_calibrations_and_builds(polyhal: Command) -> None:
    devices = opencl_devices()
    if not devices:
        pytest.skip("no OpenCL device")
    device = f"opencl:{devices[0].id.partition('-')[0]}"
    found = parsed(polyhal("prebuild", "--for", "basics", "--jobs", "1", "--device", device, "--json").out, "prebuild")
    assert found["built"] + found["cached"] > 0
    found = parsed(polyhal("sim", "calibrate", device, "--output", "card.toml", "--json").out, "sim calibrate")
    assert found["measurements"] > 0
    assert parsed(polyhal("tune", "--show", "--device", device, "--json").out, "tune")["choices"] == []
