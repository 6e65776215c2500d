"""`make site`: build the documentation into build/site. Every warning of Sphinx is an error."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site.source import write_source

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site. Returns 0, or 1 after warnings."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Build the documentation as HTML.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "site", metavar="FOLDER", help="default: build/site"
    )
    parser.add_argument(
        "--jobs", default="auto", help="processes that read and write pages (default: one for each core)"
    )
    options = parser.parse_args(arguments)
    source = options.out.with_name(f"{options.out.name}-source")
    write_source(ROOT, source)
    flags = ["--fail-on-warning", "--keep-going", "--quiet", "--fresh-env", "--builder", "html", "--jobs", options.jobs]
    return int(build_main([*flags, "--conf-dir", str(Path(__file__).parent), str(source), str(options.out)]))


if __name__ == "__main__":
    raise SystemExit(main())
