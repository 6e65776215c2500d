"""Addresses of the documentation. The metadata of the distribution names them, so that pyproject.toml is their only place."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata


def page(name: str, section: str = "") -> str:
    """Return the address of a page, such as "devices", and of its section with the anchor `section`.

    In a checkout that is not installed it is the page's path.
    """
    try:
        lines = metadata("polyhal").get_all("Project-URL") or []
    except PackageNotFoundError:
        lines = []
    folder = next((line.partition(", ")[2] for line in lines if line.startswith("Documentation, ")), "docs")
    return f"{folder}/{name}.md" + (f"#{section}" if section else "")
