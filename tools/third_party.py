"""THIRD-PARTY.md: the licences of all packages that Polyhal's extras install, and the sources of the facts that it contains.

    python -m tools.third_party    # update the page, with the packages that are installed here

Licences come from the metadata of installed packages. A package that is not installed keeps its row; without a row it is
reported as unknown, which a test refuses. Sources of facts come from the addresses in the files of the packages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata

from tools.distribution import ROOT, folders, tracked

PAGE = ROOT / "THIRD-PARTY.md"
UNKNOWN = "unknown"
_FOR_DEVELOPERS = ("dev", "test", "docs", "all")
_ROW = re.compile(r"^\| `([\w.-]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_ADDRESS = re.compile(r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|info|edu)/[\w.~/-]*[\w/])")
_CLASSIFIER = "License :: OSI Approved :: "
_HEAD = """# Third-party notices

`python -m tools.third_party` writes this page. Polyhal itself is under the [MIT licence](LICENSE).

## Packages

The distribution contains no code of others. pip installs these packages separately, each under its own licence, which its wheel
contains.

| package | licence | installed with |
|---|---|---|
"""
_FACTS = """
## Facts

Code, tables and cards of devices state facts that others published: layouts of files, names and limits of devices, behaviour of
drivers, coefficients. No text and no code is taken from them. Each file states the source of its facts. The sources are on
these sites:

"""


def requirements() -> dict[str, list[str]]:
    """Return the packages of the dependencies and of the extras for users, each with the extras; empty for dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = {_name(text): [] for text in project["dependencies"] if not _elsewhere(text)}
    for extra, texts in project["optional-dependencies"].items():
        for text in texts if extra not in _FOR_DEVELOPERS else ():
            name = _name(text)
            if name != "polyhal" and found.get(name) != []:
                found.setdefault(name, []).append(extra)
    return dict(sorted(found.items(), key=lambda pair: pair[0].lower()))


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found[0]


def _elsewhere(requirement: str) -> bool:
    """Return whether a requirement is for a system on which an extra's packages are installed without the extra."""
    return "ARM64" in requirement


def installed_licence(package: str) -> str:
    """Return the licence in the metadata of an installed package; empty if it is not installed or states none."""
    try:
        facts = metadata(package)
    except PackageNotFoundError:
        return ""
    classified = [c.removeprefix(_CLASSIFIER) for c in facts.get_all("Classifier") or [] if c.startswith(_CLASSIFIER)]
    titles = [text.strip().partition("\n")[0] for text in facts.get_all("License") or []]  # some have the whole text
    stated = ", ".join(facts.get_all("License-Expression") or classified or titles)
    return re.sub(r"\s+", " ", stated).replace("|", "/").strip()


def recorded() -> dict[str, str]:
    """Return the licences in the page."""
    return {name: licence for name, licence, _ in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


def sources() -> list[str]:
    """Return the sites that files of the packages name as sources."""
    packaged = tuple(f"{folder}/" for folder in folders(ROOT).values())
    named = [n for n in tracked(ROOT) if n.startswith(packaged) and n.endswith((".py", ".toml", ".cl", ".h", ".wgsl"))]
    return sorted({site for name in named for site in _sites((ROOT / name).read_text(encoding="utf-8"))})


def _sites(text: str) -> Iterator[str]:
    """Yield the site of each address in a text: the host, and for a repository its owner and name."""
    for address in _ADDRESS.findall(text):
        host, *path = address.split("/")
        if "example" in host or path[:1] == ["polyhal"]:
            continue
        yield "/".join([host, *path[:2]]) if host in ("github.com", "gitlab.com") else host


def page(known: dict[str, str]) -> str:
    """Return the text of the page, with licences in `known` for packages that are not installed."""
    rows = ""
    for package, extras in requirements().items():
        licence = known.get(package) or installed_licence(package) or UNKNOWN
        rows += f"| `{package}` | {licence} | {', '.join(f'`polyhal[{e}]`' for e in extras) or '`polyhal`'} |\n"
    return _HEAD + rows + _FACTS + "".join(f"- {site}\n" for site in sources())


def main() -> None:
    """Write the page. Licences of installed packages replace those in the page."""
    current = {name: found for name in requirements() if (found := installed_licence(name))}
    PAGE.write_text(page(recorded() | current), encoding="utf-8")


if __name__ == "__main__":
    main()
