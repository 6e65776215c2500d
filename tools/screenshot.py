"""Pictures of pages that Polyhal writes, made by a browser without a window:

    python -m tools.screenshot              # docs/pictures/simulator.png, from a run of examples/simulated_gpu.py
    python -m tools.screenshot run.html out.png --size 1200x900

Needs Chromium or Chrome, and Pillow to reduce the number of colours.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_COLOURS = 64


def screenshot(page: Path, picture: Path, size: tuple[int, int]) -> None:
    """Write a PNG file of the top of an HTML page, `size` pixels wide and high. Raises SystemExit without a browser."""
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"no browser was found; install one of {', '.join(_BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "page.png"
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--virtual-time-budget=4000",
            f"--user-data-dir={folder}/profile",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={raw}",
            page.resolve().as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        with Image.open(raw) as image:
            image.convert("RGB").quantize(_COLOURS).save(picture, optimize=True)


def _simulated_run(page: Path) -> None:
    script = ROOT / "examples" / "simulated_gpu.py"
    command = [sys.executable, "-m", "polyhal", "sim", "explain", str(script), "--out", str(page)]
    subprocess.run(command, check=True, capture_output=True, cwd=page.parent, timeout=300)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a picture. Returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tools.screenshot", description="Write a picture of a page.")
    parser.add_argument("page", nargs="?", type=Path, help="HTML file (default: the page of a simulated run)")
    parser.add_argument("picture", nargs="?", type=Path, default=ROOT / "docs" / "pictures" / "simulator.png")
    parser.add_argument("--size", default="1100x820", help="width and height in pixels (default: %(default)s)")
    options = parser.parse_args(arguments)
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        page = options.page
        if page is None:
            page = Path(folder) / "run.html"
            _simulated_run(page)
        screenshot(page, options.picture, (width, height))
    print(f"{options.picture}: {options.picture.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
