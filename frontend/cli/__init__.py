"""The command line: `polyhal train`, `generate`, `devices`, `doctor` and more.

Every command imports its modules when it runs, so that `polyhal --help` stays fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the console script."""
    try:
        from polyhal.cli.app import run
    except ModuleNotFoundError as error:
        raise SystemExit(f"error: {missing_package(error)}") from None
    raise SystemExit(run())


def missing_package(error: ModuleNotFoundError) -> str:
    """Return a sentence about a package that could not be imported, and the remedy."""
    name = (error.name or "").partition(".")[0]
    extra = _extra_of(name)
    remedy = (
        f'with `pip install "polyhal[{extra}]"`' if extra else "or all required packages with `pip install polyhal`"
    )
    return f"the package {name} is not installed; install it{'' if extra else ','} {remedy}"


def _extra_of(package: str) -> str:
    """Return the first extra of Polyhal that installs a package; empty if there is none."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("polyhal") or []
    except PackageNotFoundError:
        return ""
    for line in lines:
        found = re.match(r"([\w.-]+).*extra == [\"']([\w-]+)[\"']", line)
        if found and found[1].lower() == package.lower() and found[2] not in ("all", "dev", "test"):
            return found[2]
    return ""


__all__ = ["main"]
