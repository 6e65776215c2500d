"""The documentation is true: its programs run, its commands exist, and its numbers are computed here.

Links and names are checked in tests/architecture/test_documented_names.py.
docs/adding-a-backend.md describes a distribution of its own and is tested with that: see tests/plugins.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from documented import PAGES, ROOT, facts, hardware, numbers_in_words, python_blocks

from polyhal.cli.app import COMMANDS, app

_KIT = {
    "README.md": "assert loss.item() < 0.01",
    "docs/index.md": "assert loss.item() < 0.1",
    "docs/quickstart.md": "assert loss.item() < 0.01",
    "docs/training.md": "assert accuracy() > 0.95 and first == 10",
    "docs/running-models.md": "",
    "docs/several-devices.md": "",
    "docs/serving.md": "",
    "docs/capture.md": "",
    "docs/command-line.md": "",
    "docs/contract.md": "assert device.capabilities.storage",
    "docs/ops.md": "",
    "docs/autograd.md": "assert abs(w.grad[0].item() - 60.25661) < 1e-3",  # 3 exp(3); the failed backward pass adds nothing
    "docs/scheduler.md": "assert len(step.graphs) == 1",
    "docs/debugging.md": "",
    "docs/streams.md": "assert abs(c[0, 0].item() - 66.71828) < 1e-3",
    "docs/model-parallel.md": "assert len(plan.stages) == 4 and len(step.graphs) == 1",
    "docs/parallel.md": "assert len(step.graphs) == 1",
    "docs/notebooks.md": "assert len(curves.points['loss']) == 20",
    "docs/memory.md": "assert more.batch_size >= found.batch_size > 64",
    "docs/tour.md": "",
    "docs/simulator.md": "assert profile.kernels['matmul'].total > 5e9",
    "docs/user-kernels.md": "",
    "docs/data-loading.md": "",
    "docs/distributed.md": "assert total.item() < 1",
    "docs/distributions.md": "",
    "docs/saving.md": "",
    "docs/transforms-of-functions.md": "",
    "docs/adding-a-fusion.md": """
import polyhal
from polyhal.hal.testing import Scope, cases
made = [c for c in cases(polyhal.Device("numpy"), Scope()) if c.id.split("/")[1] == "demo_squared_relu"]
assert len(made) >= 8, [c.id for c in made]
for case in made:
    case.run()
""",
    "docs/adding-an-op.md": """
from polyhal.hal.testing import Scope, cases
device = polyhal.Device("numpy")
made = [c for c in cases(device, Scope()) if c.id.split("/")[1] in ("demo_softsign", "demo_mean_abs", "demo_signed_step")]
assert len(made) >= 18, [c.id for c in made]
for case in made:
    case.run()
""",
}
"""Pages whose Python runs as one program, and the code that is run after it."""


@pytest.mark.parametrize("name", sorted(_KIT))
def test_the_programs_of_a_page_run(name: str, tmp_path: Path) -> None:
    """In a subprocess, because pages declare ops or backends, and on NumPy, which is available everywhere."""
    program = tmp_path / "page.py"
    program.write_text(python_blocks(ROOT / name) + _KIT[name], encoding="utf-8")
    environment = {**os.environ, "POLYHAL_DEVICE": "numpy"}
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


FACTS = facts()


@pytest.mark.polyhal_every_case
@pytest.mark.parametrize("pattern", FACTS)
def test_numbers_are_true_wherever_they_are_said(pattern: str) -> None:
    """A pattern may occur on any page, occurs on at least one, and always with the numbers that are computed here."""
    expected = tuple(map(str, FACTS[pattern]()))
    said = {
        f"{page}: {match.group(0)}": tuple(numbers_in_words(g) for g in match.groups())
        for page in PAGES
        for match in re.finditer(pattern, re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8")))
    }
    assert said, f"no page says {pattern!r}"
    assert {where: numbers for where, numbers in said.items() if numbers != expected} == {}, expected


def test_the_readme_shows_every_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^    polyhal (\w+)", text, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.polyhal_every_case
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_that_a_page_shows_exist(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^    |`)polyhal ([a-z]\w*)", text, re.MULTILINE))
    assert shown <= set(COMMANDS)


@pytest.mark.polyhal_every_case
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_that_a_page_shows_take_the_arguments_shown(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    for line in re.findall(r"^    polyhal ([a-z].*)$", text, re.MULTILINE):
        command, *arguments = shlex.split(re.split(r"\s{2,}| [|>] ", line)[0].rstrip("\\"))
        shown = group.commands[command]
        takes_others = any(p.nargs == -1 for p in getattr(shown, "params", ()))
        if takes_others or hasattr(shown, "commands") or any(re.match(r"[\[<…]|[.]{3}", a) for a in arguments):
            continue  # another program's arguments, a command group, or placeholders
        options = {name for p in shown.params for name in (*p.opts, *p.secondary_opts)}
        unknown = [a for a in arguments if a.startswith("--") and a.partition("=")[0] not in options]
        assert unknown == [], line
        flags = {name for p in shown.params if getattr(p, "is_flag", False) for name in (*p.opts, *p.secondary_opts)}
        pairs = zip(["", *arguments], arguments, strict=False)
        values = [a for b, a in pairs if a[0] != "-" and (b[:1] != "-" or "=" in b or b in flags)]
        assert len(values) <= sum(p.param_type_name == "argument" for p in shown.params), line


def test_the_readme_names_the_gpus_that_results_are_from() -> None:
    """Coverage data and benchmark results of another vendor make the README's "not yet" untrue."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # AMD makes processors, too.
    names = " ".join(n for n in hardware() if not re.search("EPYC|Ryzen|Threadripper", n))
    assert "NVIDIA H200" in names
    untried = re.search(r"not yet run on ([\w, ]+) GPUs", text)
    assert untried is not None
    vendors = re.findall(r"[A-Z]\w+", untried.group(1))
    assert vendors == ["AMD", "Apple", "Arm", "Intel"]
    assert [v for v in ("AMD", "Radeon", "Apple", "Arm", "Mali", "Arc") if re.search(rf"\b{v}\b", names)] == []
