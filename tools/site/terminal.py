"""Write the picture of a terminal on the start page: commands that are run here, with their output.

python -m tools.site.terminal        # docs/pictures/terminal.svg
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/pictures/terminal.svg"
COMMANDS = (
    ("polyhal devices", 8, 0),
    ("polyhal train --steps 1000 --width 128 --layers 3 --sample-every 0 --save-dir mine", 7, 8),
    ("polyhal generate mine --prompt 'def ' --max-tokens 160 --temperature 0.5", 8, 0),
)
"""Commands, and how many lines at the start and at the end of their output are shown."""
_WIDTH = 96


def main() -> None:
    """Run the commands in an empty folder, and write the picture."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        for command, first, last in COMMANDS:
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            lines = _output(command, Path(folder))
            for line in _shortened(lines, first, last):
                console.print(Text(line))
            console.print()
    # Fonts of other servers would be loaded by nobody: pictures may not.
    style = re.sub(r"@font-face \{\{.*?\n    \}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    PICTURE.write_text(console.export_svg(title="", code_format=style, unique_id="terminal"), encoding="utf-8")


def _shortened(lines: list[str], first: int, last: int) -> list[str]:
    if len(lines) <= first + last:
        return lines
    return [*lines[:first], *(["..."] if last else []), *lines[len(lines) - last :]]


def _output(command: str, folder: Path) -> list[str]:
    environment = {
        **os.environ,
        "COLUMNS": str(_WIDTH),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.rstrip().splitlines()


if __name__ == "__main__":
    main()
