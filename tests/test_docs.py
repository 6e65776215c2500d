"""The pages that teach by code are run, and what they make is held to the conformance kit.

docs/adding-a-backend.md is about a distribution of its own, and tested with that: see tests/plugins.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"

_KIT = {
    "capture.md": "",
    "streams.md": "assert abs(c[0, 0].item() - 66.71828) < 1e-3",
    "memory.md": "assert more.batch_size >= found.batch_size > 64",
    "adding-an-op.md": """
from polyhal.hal.testing import Scope, cases
device = polyhal.Device("numpy")
made = [c for c in cases(device, Scope()) if c.id.split("/")[1] in ("softsign", "mean_abs")]
assert len(made) >= 16, [c.id for c in made]
for case in made:
    case.run()
""",
}


def python_blocks(page: Path) -> str:
    """The page's Python, in order, as one program."""
    return "\n\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.parametrize("name", sorted(_KIT))
def test_page_runs(name: str, tmp_path: Path) -> None:
    """In a process of its own, because the page declares ops or backends, on the device that is everywhere."""
    program = tmp_path / "page.py"
    program.write_text(python_blocks(DOCS / name) + _KIT[name], encoding="utf-8")
    here = {**os.environ, "POLYHAL_DEVICE": "numpy"}
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=here
    )
    assert done.returncode == 0, done.stderr
