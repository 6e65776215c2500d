"""The folder that Sphinx reads: pages of docs and of the repository's root, and the reference, with a navigation."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tools.site import reference
from tools.site.navigation import OF_THE_ROOT, with_others

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
_URLS = ("Repository", "Source", "Source code", "Homepage")
"""Names of the repository's address in pyproject.toml, the first that is there."""


def write_source(root: Path, folder: Path) -> None:
    """Write the source of the site of the repository `root` to `folder`."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    shutil.copytree(root / "docs/pictures", folder / "pictures")
    address = repository_address(root)
    for name, file in {**_pages(root), **OF_THE_ROOT}.items():
        text = with_links((root / file).read_text(encoding="utf-8"), PurePosixPath(file).parent, address)
        if name == "index":
            text += _navigation(_pages(root))
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / "reference").mkdir()
    for name, text in reference.pages().items():
        (folder / f"reference/{name}.rst").write_text(text, encoding="utf-8")


def _pages(root: Path) -> dict[str, str]:
    return {p.stem: f"docs/{p.name}" for p in sorted((root / "docs").glob("*.md"))}


def repository_address(root: Path) -> str | None:
    """Return the repository's address from pyproject.toml, or None if it has none."""
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    address = next((urls[name] for name in _URLS if name in urls), None)
    return address.rstrip("/") if address else None


def with_links(text: str, folder: PurePosixPath, address: str | None) -> str:
    """Return a page's text with links that work on the site.

    `folder` is the page's own in the repository. Links to pages lead to them; links to other files to the repository at
    `address`, or become plain text if there is none. Code stays as it is.
    """
    parts = re.split(r"(^```[\s\S]*?^```|^ {4}.*$)", text, flags=re.MULTILINE)
    return "".join(
        part if i % 2 else _LINK.sub(lambda m: _link(m, folder, address), part) for i, part in enumerate(parts)
    )


def _link(match: re.Match[str], folder: PurePosixPath, address: str | None) -> str:
    text, target = match.groups()
    path, hash_, anchor = target.partition("#")
    if "://" in target or target.startswith("mailto:") or not path:
        return match.group(0)
    place = _normal(folder / path)
    page = {file: name for name, file in OF_THE_ROOT.items()}.get(place)
    if page is None and re.fullmatch(r"docs/[\w-]+\.md", place):
        page = PurePosixPath(place).stem
    if page is not None:
        return f"[{text}]({page}.md{hash_}{anchor})"
    return text if address is None else f"[{text}]({address}/blob/HEAD/{place}{hash_}{anchor})"


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _navigation(pages: Iterable[str]) -> str:
    blocks = ["\n"]
    for section in with_others(pages):
        blocks += ["```{toctree}", ":hidden:", f":caption: {section.caption}", "", *section.pages, "```", ""]
    return "\n".join(blocks)
